// Server-sent events (HTML standard) over fetch. EventSource cannot send a key.

// Takes text in pieces of any length and returns the events that are complete.
export class EventParser {
  #rest = '';
  #type = 'message';
  #data = [];

  push(text) {
    const events = [];
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop();
    for (let line of lines) {
      if (line.endsWith('\r')) line = line.slice(0, -1);
      if (line === '') {
        if (this.#data.length) events.push({ type: this.#type, data: this.#data.join('\n') });
        this.#type = 'message';
        this.#data = [];
      } else if (line.startsWith('data:')) {
        this.#data.push(line.slice(line[5] === ' ' ? 6 : 5));
      } else if (line.startsWith('event:')) {
        this.#type = line.slice(6).trim();
      }
    }
    return events;
  }
}

// The events of a response. `onBytes` is called whenever bytes arrive, comments included.
export async function* eventsOf(response, onBytes = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      onBytes();
      yield* parser.push(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
