// The conversation as data, and what of it is sent to the server.
//
// A message is {role: 'user', text}, an answer {role: 'assistant', text, reasoning, calls, request, usage, ...}, the result of
// a tool {role: 'tool', text, call, name}, a fork {role: 'assistant', kind: 'fork', prefix, branches, chosen} or three readers
// {kind: 'readers', notes, branches}. Readers are not part of the conversation.

// The one that is shown. `id` is null until it is kept; `named`: the user has given the title; `changed`: the version that was
// loaded or saved last, by which the library sees that another tab has saved it since.
export const conversation = { id: null, title: '', named: false, created: 0, changed: 0, system: '', messages: [] };

export function replaceWith({ id = null, title = '', named = false, created = 0, changed = 0, system = '', messages = [] }) {
  Object.assign(conversation, { id, title, named, created, changed, system, messages });
}

// True: the answer is in the conversation that is shown. One that was running may no longer be.
export const isShown = (answer) => conversation.messages.some((message) => message === answer || message.branches?.includes(answer));

// The text of a message; for a fork, the chosen answer.
export const spoken = (message) => (message.kind === 'fork' ? message.prefix + message.branches[message.chosen].text : message.text);

function sentMessage(message) {
  if (message.role === 'tool') return { role: 'tool', tool_call_id: message.call, name: message.name, content: message.text };
  const sent = { role: message.role, content: spoken(message) };
  if (message.calls?.length) {
    sent.tool_calls = message.calls.map(({ id, name, arguments: text }) => ({ id, type: 'function', function: { name, arguments: text } }));
  }
  return sent;
}

export function asSent(messages, system = '') {
  const sent = messages.filter((message) => message.kind !== 'readers').map(sentMessage)
    .filter((message) => message.role !== 'assistant' || message.content !== '' || message.tool_calls);
  return system.trim() === '' ? sent : [{ role: 'system', content: system }, ...sent];
}

// The calls of the last answer that have no result yet.
export function openCalls(messages) {
  let last = messages.length - 1;
  while (last >= 0 && messages[last].role === 'tool') --last;
  const done = new Set(messages.slice(last + 1).map(({ call }) => call));
  return (messages[last]?.calls ?? []).filter(({ id }) => !done.has(id));
}

// The same if they are those of this answer: it is the last one, and only results have come after it.
export const openCallsOf = (answer, messages) => (messages.findLast(({ role }) => role !== 'tool') === answer ? openCalls(messages) : []);

// Answers that were running when the page was closed count as stopped.
export function markStopped(messages) {
  for (const answer of messages.flatMap((message) => message.branches ?? [message])) {
    if (answer.stopper || (answer.finish === null && !answer.error)) answer.finish = 'stopped';
    delete answer.stopper;
  }
}

// A title from the first words that the user wrote.
export function titleOf(messages) {
  const said = messages.find(({ role }) => role === 'user')?.text ?? (messages.some(({ kind }) => kind === 'readers') ? 'Three readers' : '');
  const line = said.trim().split('\n')[0].replace(/\s+/g, ' ');
  return line.length > 60 ? `${line.slice(0, 60).replace(/\s\S*$/, '')}…` : line;
}

// Where an answer forks by default: at the space after its middle, or at its beginning if it is short.
export function middleOf(text) {
  const middle = text.indexOf(' ', Math.floor(text.length / 2));
  return text.length < 24 || middle < 0 ? 0 : middle;
}

// A long text for several readers: notes of the kind that the demo model knows. `context`: the model's, in tokens.
export function longNotes(context) {
  const names = 'Mia Tom Anna Ben Lily Sam Ella Max Zoe Leo Ruby Finn Nora Jack Ivy Noah Rosa Theo Clara Hugo Alice Oscar Lucy Felix'.split(' ');
  const colours = 'red blue green yellow white black silver golden brown purple orange grey'.split(' ');
  const boxes = 'box drawer jar bag chest tin case shelf'.split(' ');
  const things = 'kite ball lantern drum boat basket hat book bell key map cup whistle wagon scarf ladder'.split(' ');
  const wanted = Math.min(5200, Math.max(300, context * 1.9));  // characters; a token has some three to four of them
  const lines = ['Remember these notes.'];
  for (let i = 0, length = 0; length < wanted; ++i) {
    const line = i % 2 ? `The ${colours[(i * 5) % 12]} ${boxes[(i * 3) % 8]} holds a ${colours[(i * 7 + 1) % 12]} ${things[(i * 11) % 16]}.`
      : `The code of ${names[(i * 7) % 24]} is ${1000 + (i * 7919) % 9000}.`;
    lines.push(line);
    length += line.length + 1;
  }
  return lines.join(' ');
}
