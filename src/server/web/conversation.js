// The conversation as data: its messages, its settings, and what of it is sent. Kept in the tab.
//
// A message is {role: 'user', text}, an answer {role: 'assistant', text, request, usage, ...}, a fork {kind: 'fork', prefix,
// branches, chosen} or three readers {kind: 'readers', notes, branches}, which are no part of the conversation.
import { store, stored } from './dom.js';

export const SETTINGS = { temperature: 0.8, seed: '', maxTokens: 400 };
export const settings = { ...SETTINGS, ...stored('quire.settings', {}) };

export const conversation = { messages: stored('quire.messages', []) };

const SAVE_MS = 500;
let savedAt = 0;
// `now` false: not if it was saved a moment ago.
export function save(now = true) {
  if (!now && Date.now() - savedAt < SAVE_MS) return;
  savedAt = Date.now();
  store('quire.messages', conversation.messages);
}

export function saveSettings(fields) {
  Object.assign(settings, settingsFrom(fields));
  store('quire.settings', settings);
}

// Settings from what is in the fields, as strings. What is no number is the default.
export function settingsFrom({ temperature, seed, maxTokens }) {
  const number = (text, fallback) => (text === '' || Number.isNaN(Number(text)) ? fallback : Number(text));
  return {
    temperature: number(temperature, SETTINGS.temperature),
    seed: number(seed, ''),
    maxTokens: Math.max(1, number(maxTokens, SETTINGS.maxTokens)),
  };
}

export const seedFor = (i) => (settings.seed === '' ? Math.floor(Math.random() * 100_000) : Number(settings.seed) + i);

// What a message says; of a fork, the way that was chosen.
export const spoken = (message) => (message.kind === 'fork' ? message.prefix + message.branches[message.chosen].text : message.text);

export function asSent(messages) {
  return messages.filter((message) => message.kind !== 'readers')
    .map((message) => ({ role: message.role, content: spoken(message) }))
    .filter((message) => message.role === 'user' || message.content !== '');
}

// What was being written when the page went away is as far as it came.
export function markStopped(messages) {
  for (const answer of messages.flatMap((message) => message.branches ?? [message])) {
    if (answer.stopper || (answer.finish === null && !answer.error)) answer.finish = 'stopped';
    delete answer.stopper;
  }
}

// Where an answer forks if nobody says where: at the space behind its middle; at its beginning where it is short.
export function middleOf(text) {
  const middle = text.indexOf(' ', Math.floor(text.length / 2));
  return text.length < 24 || middle < 0 ? 0 : middle;
}

// A long text that many could ask about: notes of the kind that the demo model knows. `context` tokens are the model's.
export function longNotes(context) {
  const names = 'Mia Tom Anna Ben Lily Sam Ella Max Zoe Leo Ruby Finn Nora Jack Ivy Noah Rosa Theo Clara Hugo Alice Oscar Lucy Felix'.split(' ');
  const colours = 'red blue green yellow white black silver golden brown purple orange grey'.split(' ');
  const boxes = 'box drawer jar bag chest tin case shelf'.split(' ');
  const things = 'kite ball lantern drum boat basket hat book bell key map cup whistle wagon scarf ladder'.split(' ');
  const wanted = Math.min(5200, Math.max(300, context * 1.9));  // characters; a token is some three to four of them
  const lines = ['Remember these notes.'];
  for (let i = 0, length = 0; length < wanted; ++i) {
    const line = i % 2 ? `The ${colours[(i * 5) % 12]} ${boxes[(i * 3) % 8]} holds a ${colours[(i * 7 + 1) % 12]} ${things[(i * 11) % 16]}.`
      : `The code of ${names[(i * 7) % 24]} is ${1000 + (i * 7919) % 9000}.`;
    lines.push(line);
    length += line.length + 1;
  }
  return lines.join(' ');
}
