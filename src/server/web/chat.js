// The actions of the conversation: send a message, fork an answer, start three readers, begin again.
import { running, stopAll, write } from './answer.js';
import { asSent, conversation, longNotes, middleOf, save, seedFor, settings } from './conversation.js';
import { notice, show, showAll, toEnd } from './messages_view.js';
import { pool } from './pool.js';

const FORK_TEMPERATURE = 1.1;  // so that the two answers differ

const busy = () => running.stoppers.size > 0;
const growing = (answer) => () => { answer.changed(); toEnd(); save(false); };

// Appends messages to the conversation.
function add(...messages) {
  for (const message of messages) {
    conversation.messages.push(message);
    show(message);
  }
  toEnd(true);
  save();
}

export async function send(text) {
  if (busy() || text.trim() === '') return;
  notice('');
  const question = { role: 'user', text: text.trim() };
  const sent = { messages: asSent([...conversation.messages, question]), seed: seedFor(0) };
  const answer = { role: 'assistant', text: '' };
  add(question, answer);
  await write(answer, sent, growing(answer));
}

// Where the fork begins: at the end of the selection, else at the end of a running answer, else in the middle.
function forkPoint(message, element, wasWriting) {
  const selection = getSelection();
  if (selection.rangeCount && !selection.isCollapsed && element.contains(selection.anchorNode) && element.contains(selection.focusNode)) {
    const range = selection.getRangeAt(0);
    range.setStart(element, 0);
    return range.toString().length;
  }
  return wasWriting ? message.text.length : middleOf(message.text);
}

export async function forkAnswer(message, element) {
  const wasWriting = Boolean(message.stopper);
  if (wasWriting) {
    message.stopper.abort();
    while (message.stopper) await new Promise((resolve) => setTimeout(resolve, 10));
  } else if (busy()) {
    return notice('Another answer is still running. Stop it first.');
  }
  const { messages } = conversation;
  const at = messages.indexOf(message);
  if (at < 0) return;
  const before = JSON.stringify(messages);
  const prefix = message.text.slice(0, forkPoint(message, element, wasWriting)).trimEnd();
  const seeds = [1, 2].map(seedFor);
  const fork = {
    role: 'assistant', kind: 'fork', prefix, chosen: 0,
    branches: seeds.map((seed, i) => ({ text: '', label: `${['first', 'second'][i]} answer, seed ${seed}` })),
  };
  const lost = messages.length - at - 1;
  messages.splice(at, messages.length - at, fork);
  showAll();
  save();
  notice(lost > 0 ? 'The messages after this answer were removed.' : 'The answer was replaced by two answers.',
    { calm: true, action: 'Undo', run: () => { stopAll(); conversation.messages = JSON.parse(before); showAll(); save(); } });
  const sent = asSent(messages.slice(0, at));
  if (prefix) sent.push({ role: 'assistant', content: prefix });
  await Promise.all(fork.branches.map((branch, i) => write(branch, {
    messages: sent, seed: seeds[i], temperature: Math.max(FORK_TEMPERATURE, settings.temperature),
    ...(prefix && { continue_final_message: true, add_generation_prompt: false }),
  }, growing(branch))));
}

export async function threeReaders() {
  if (busy()) return notice('An answer is still running. Stop it first.');
  notice('');
  const notes = longNotes(pool.context ?? 2048);
  const readers = {
    kind: 'readers', notes,
    branches: ['Mia', 'Tom', 'Zoe'].map((name) => ({ text: '', question: `Tell me a story about ${name}.` })),
  };
  add(readers);
  await Promise.all(readers.branches.map((branch, i) => write(branch, {
    messages: [{ role: 'user', content: notes }, { role: 'assistant', content: 'I will remember them.' }, { role: 'user', content: branch.question }],
    seed: seedFor(i), max_tokens: Math.min(settings.maxTokens, 200),
  }, growing(branch))));
}

export function beginAgain() {
  stopAll();
  conversation.messages = [];
  save();
  notice('');
  showAll();
}
