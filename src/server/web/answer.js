// Streams answers from the server into {text, request, finish, usage, error, ...}.
import { save, settings } from './conversation.js';
import { $ } from './dom.js';
import { eventsOf } from './event_stream.js';
import { pool } from './pool.js';
import { ServerError, askForKey, refusal, request } from './server.js';

// The AbortControllers of the running answers. `onChange` is called when an answer begins or ends.
export const running = { stoppers: new Set(), onChange: () => {} };

export function stopAll() {
  for (const stopper of running.stoppers) stopper.abort();
}

// Adds one event of the stream to the answer. True: it was the last.
export function takeEvent(answer, data) {
  if (data === '[DONE]') return true;
  const chunk = JSON.parse(data);
  if (chunk.error) throw new ServerError(chunk.error.message);
  const choice = chunk.choices?.[0];
  if (choice?.delta?.content) answer.text += choice.delta.content;
  if (choice?.finish_reason) answer.finish = choice.finish_reason;
  if (chunk.usage) answer.usage = chunk.usage;
  return false;
}

// Streams one answer. `sent` has the fields of the request besides the settings. `changed` is called as the answer grows.
// Never throws.
export async function write(answer, sent, changed) {
  const stopper = new AbortController();
  answer.stopper = stopper;
  running.stoppers.add(stopper);
  running.onChange();
  Object.assign(answer, { text: answer.text ?? '', finish: null, error: null });
  const started = performance.now();
  try {
    const response = await request('/v1/chat/completions', {
      method: 'POST',
      signal: stopper.signal,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: pool.model, stream: true, stream_options: { include_usage: true },
        temperature: settings.temperature, max_tokens: settings.maxTokens, ...sent,
      }),
    });
    if (!response.ok) throw await refusal(response);
    answer.request = Number(response.headers.get('x-request-id')) || null;
    changed();
    let complete = false;
    for await (const { data } of eventsOf(response)) {
      complete = takeEvent(answer, data);
      if (complete) break;
      changed();
    }
    if (!complete && !answer.finish) throw new ServerError('The connection broke before the answer was complete.');
    answer.seconds = (performance.now() - started) / 1000;
  } catch (error) {
    if (error.name === 'AbortError') answer.finish = 'stopped';
    else if (error.status === 401) { answer.error = error.message; askForKey(); $('key').focus(); }
    else answer.error = error instanceof ServerError ? error.message : 'The server cannot be reached. Is it still running?';
  }
  running.stoppers.delete(stopper);
  delete answer.stopper;
  changed();
  save();
  running.onChange();
}
