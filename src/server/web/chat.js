// The actions of the conversation: send, regenerate, edit, give the result of a tool, fork, start three readers.
import { running, stopAll, write } from './answer.js';
import { asSent, conversation, isShown, longNotes, middleOf, openCalls } from './conversation.js';
import { newConversation, openConversation, save, saveChanges } from './keeping.js';
import { sourceEnd } from './markdown.js';
import { notice, show, showAll, toEnd } from './messages_view.js';
import { model } from './model.js';
import { pool } from './pool.js';
import { seedFor, settings } from './settings.js';
import { plain } from './transfer.js';

const FORK_TEMPERATURE = 1.1;  // so that the two answers differ
const CONTINUE = { continue_final_message: true, add_generation_prompt: false };

// False: an answer is running, and the user is told.
export const idle = () => {
  if (running.stoppers.size > 0) notice('An answer is still running. Stop it first.');
  return running.stoppers.size === 0;
};
const growing = (answer) => () => {
  if (!isShown(answer)) return;  // the user has turned to another conversation
  answer.changed();
  toEnd();
  save(false);
};

// Appends messages to the conversation.
function add(...messages) {
  for (const message of messages) {
    conversation.messages.push(message);
    show(message);
  }
  toEnd(true);
  save();
}

// Replaces the messages from `at` on. The user can take it back.
function replaceFrom(at, said, ...messages) {
  const { messages: all } = conversation;
  const before = plain(all);
  const lost = conversation.messages.length - at - 1;
  conversation.messages.splice(at, conversation.messages.length - at, ...messages);
  showAll();
  save();
  notice(lost > 0 ? 'The messages after this one were removed.' : said, {
    calm: true, action: 'Undo',
    run: () => {
      stopAll();
      if (conversation.messages !== all) return;  // another conversation is shown
      conversation.messages = before;
      showAll();
      save();
    },
  });
}

const answerTo = (messages, answer, more = {}) => write(answer, { messages: asSent(messages, conversation.system), seed: seedFor(answer.tries ?? 0), ...more }, growing(answer));

export async function send(text) {
  if (running.stoppers.size > 0 || text.trim() === '') return;
  notice('');
  const question = { role: 'user', text: text.trim() };
  const answer = { role: 'assistant', text: '' };
  const before = [...conversation.messages, question];
  add(question, answer);
  await answerTo(before, answer);
}

// Writes the answer anew, with another seed; after an error with the same one.
export async function regenerate(message) {
  const at = conversation.messages.indexOf(message);
  if (at < 0 || !idle()) return;
  const answer = { role: 'assistant', text: '', tries: (message.tries ?? 0) + (message.error ? 0 : 1) };
  if (message.error && at === conversation.messages.length - 1) {
    conversation.messages[at] = answer;
    showAll();
  } else {
    replaceFrom(at, 'The answer was replaced.', answer);
  }
  await answerTo(conversation.messages.slice(0, at), answer);
}

// Goes on from a message with another text: a question is answered anew, an answer is continued.
export async function edit(message, text) {
  const at = conversation.messages.indexOf(message);
  if (at < 0 || !idle()) return;
  if (message.role === 'assistant' && text.trim() === '') return regenerate(message);
  if (text.trim() === '') return;
  const before = conversation.messages.slice(0, at);
  if (message.role === 'user') {
    const question = { role: 'user', text: text.trim() };
    const answer = { role: 'assistant', text: '' };
    replaceFrom(at, 'The message was changed.', question, answer);
    await answerTo([...before, question], answer);
  } else {
    const begun = text.trimEnd();
    const answer = { role: 'assistant', text: begun, begun: begun.length };
    replaceFrom(at, 'The answer was changed, and is continued.', answer);
    await write(answer, { messages: [...asSent(before, conversation.system), { role: 'assistant', content: begun }], seed: seedFor(0), ...CONTINUE }, growing(answer));
  }
}

// The result of a call. When all calls have one, the model answers.
export async function giveResult(call, text) {
  if (!idle()) return;
  notice('');
  add({ role: 'tool', text, call: call.id, name: call.name });
  if (openCalls(conversation.messages).length > 0) return;
  const answer = { role: 'assistant', text: '' };
  const before = [...conversation.messages];
  add(answer);
  await answerTo(before, answer);
}

// The text that is shown up to the end of the selection in this element; null: nothing in it is selected.
function shownToSelection(element) {
  const selection = getSelection();
  if (!selection.rangeCount || selection.isCollapsed || !element.contains(selection.anchorNode) || !element.contains(selection.focusNode)) return null;
  const range = selection.getRangeAt(0).cloneRange();
  range.setStart(element, 0);
  const shown = range.cloneContents();
  for (const button of shown.querySelectorAll('.code-head')) button.remove();
  return shown.textContent;
}

// Where the fork begins: at the end of the selection, else at the end of a running answer, else in the middle.
function forkPoint(message, element, wasWriting) {
  const shown = shownToSelection(element);
  if (shown !== null) return sourceEnd(message.text, shown);
  return wasWriting ? message.text.length : middleOf(message.text);
}

export async function forkAnswer(message, element) {
  const wasWriting = Boolean(message.stopper);
  if (wasWriting) {
    message.stopper.abort();
    while (message.stopper) await new Promise((resolve) => setTimeout(resolve, 10));
  } else if (!idle()) {
    return;
  }
  const at = conversation.messages.indexOf(message);
  if (at < 0) return;
  const prefix = message.text.slice(0, forkPoint(message, element, wasWriting)).trimEnd();
  const seeds = [1, 2].map(seedFor);
  const fork = {
    role: 'assistant', kind: 'fork', prefix, chosen: 0,
    branches: seeds.map((seed, i) => ({ text: '', label: `${['first', 'second'][i]} answer, seed ${seed}` })),
  };
  replaceFrom(at, 'The answer was replaced by two answers.', fork);
  const sent = asSent(conversation.messages.slice(0, at), conversation.system);
  if (prefix) sent.push({ role: 'assistant', content: prefix });
  await Promise.all(fork.branches.map((branch, i) => write(branch, {
    messages: sent, seed: seeds[i], temperature: Math.max(FORK_TEMPERATURE, settings.temperature || 0), ...(prefix && CONTINUE),
  }, growing(branch))));
}

export async function threeReaders() {
  if (!idle()) return;
  notice('');
  const notes = longNotes(pool.context ?? 2048);
  const readers = {
    kind: 'readers', notes,
    branches: ['Mia', 'Tom', 'Zoe'].map((name) => ({ text: '', question: model.demo ? `Tell me a story about ${name}.` : `What do the notes say about ${name}?` })),
  };
  add(readers);
  await Promise.all(readers.branches.map((branch, i) => write(branch, {
    messages: [{ role: 'user', content: notes }, { role: 'assistant', content: 'I will remember them.' }, { role: 'user', content: branch.question }],
    seed: seedFor(i), max_tokens: Math.min(settings.max_tokens || 200, 200),
  }, growing(branch))));
}

// Shows another conversation; without an id, a new one.
export function turnTo(id = null) {
  stopAll();
  saveChanges();
  if (id === null || !openConversation(id)) newConversation(settings.system);
  notice('');
  showAll();
}
