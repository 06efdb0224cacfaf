// The conversation as data: its messages and settings, and what is sent to the server. It is kept in the tab.
//
// A message is {role: 'user', text}, an answer {role: 'assistant', text, request, usage, ...}, a fork {kind: 'fork', prefix,
// branches, chosen} or three readers {kind: 'readers', notes, branches}. Readers are not part of the conversation.
import { store, stored } from './dom.js';

export const SETTINGS = { temperature: 0.8, seed: '', maxTokens: 400 };
export const settings = { ...SETTINGS, ...stored('quire.settings', {}) };

export const conversation = { messages: stored('quire.messages', []) };

const SAVE_MS = 500;
let savedAt = 0;
// If `now` is false, it saves only if the last save is some time ago.
export function save(now = true) {
  if (!now && Date.now() - savedAt < SAVE_MS) return;
  savedAt = Date.now();
  store('quire.messages', conversation.messages);
}

export function saveSettings(fields) {
  Object.assign(settings, settingsFrom(fields));
  store('quire.settings', settings);
}

// Settings from the strings in the fields. A field that is not a number gets the default.
export function settingsFrom({ temperature, seed, maxTokens }) {
  const number = (text, fallback) => (text === '' || Number.isNaN(Number(text)) ? fallback : Number(text));
  return {
    temperature: number(temperature, SETTINGS.temperature),
    seed: number(seed, ''),
    maxTokens: Math.max(1, number(maxTokens, SETTINGS.maxTokens)),
  };
}

export const seedFor = (i) => (settings.seed === '' ? Math.floor(Math.random() * 100_000) : Number(settings.seed) + i);

// The text of a message; for a fork, the chosen answer.
export const spoken = (message) => (message.kind === 'fork' ? message.prefix + message.branches[message.chosen].text : message.text);

export function asSent(messages) {
  return messages.filter((message) => message.kind !== 'readers')
    .map((message) => ({ role: message.role, content: spoken(message) }))
    .filter((message) => message.role === 'user' || message.content !== '');
}

// Answers that were running when the page was closed count as stopped.
export function markStopped(messages) {
  for (const answer of messages.flatMap((message) => message.branches ?? [message])) {
    if (answer.stopper || (answer.finish === null && !answer.error)) answer.finish = 'stopped';
    delete answer.stopper;
  }
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
