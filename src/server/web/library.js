// The conversations that the browser keeps: `quire.conversation.ID` has the messages, `quire.about.ID` what the list shows.
// Several tabs may use it at the same time, each with its own conversation.
import { titleOf } from './conversation.js';
import { kept } from './storage.js';
import { checked, plain } from './transfer.js';

const WORDS = {
  full: 'The browser has no room left: the newest messages are not kept. Delete or export conversations.',
  denied: 'The browser does not let this page keep anything. Conversations are gone when the tab is closed.',
};

export class Library {
  #told = null;  // the last problem, so that it is told once

  constructor(storage = kept, now = () => Date.now()) {
    this.storage = storage;
    this.now = now;
  }

  // {id, title, created, changed}, the newest first.
  list() {
    return this.storage.names('quire.about.').map((name) => ({ ...this.storage.get(name), id: name.slice('quire.about.'.length) }))
      .filter(({ changed }) => Number.isFinite(changed)).sort((a, b) => b.changed - a.changed || (a.id < b.id ? 1 : -1));
  }

  // Null if it is gone or damaged.
  load(id) {
    const data = this.storage.get(`quire.conversation.${id}`);
    if (!data) return null;
    try { return { ...checked(data), id }; } catch { return null; }
  }

  // Keeps the conversation and gives it an id if it has none. Returns a sentence for the user if that fails, once.
  save(conversation) {
    const { storage } = this;
    if (conversation.messages.length === 0 && !conversation.id) return null;
    conversation.id ??= `${this.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
    conversation.created ||= this.now();
    if (!conversation.named) conversation.title = titleOf(conversation.messages) || 'A conversation';
    const { id, title, named, created, system } = conversation;
    const data = { title, named, created, changed: this.now(), system, messages: plain(conversation.messages) };
    const put = () => storage.set(`quire.about.${id}`, { title, created, changed: data.changed }) ?? storage.set(`quire.conversation.${id}`, data);
    let problem = put();
    // Probabilities take the most room, and are the first to go: those of the oldest conversations, then of this one.
    for (const other of problem === 'full' ? this.list().reverse() : []) {
      if (other.id === id || !this.#dropTokens(other.id)) continue;
      problem = put();
      if (problem !== 'full') break;
    }
    if (problem === 'full') {
      withoutTokens(data.messages);
      problem = put();
    }
    const told = this.#told;
    this.#told = problem;
    return problem && problem !== told ? WORDS[problem] : null;
  }

  #dropTokens(id) {
    const data = this.storage.get(`quire.conversation.${id}`);
    if (!data || !withoutTokens(data.messages)) return false;
    return this.storage.set(`quire.conversation.${id}`, data) === null;
  }

  rename(id, title) {
    const data = this.storage.get(`quire.conversation.${id}`);
    const about = this.storage.get(`quire.about.${id}`);
    if (!data || !about) return;
    this.storage.set(`quire.conversation.${id}`, { ...data, title, named: true });
    this.storage.set(`quire.about.${id}`, { ...about, title });
  }

  remove(id) {
    this.storage.remove(`quire.about.${id}`);
    this.storage.remove(`quire.conversation.${id}`);
  }
}

// True: there were some.
function withoutTokens(messages) {
  let some = false;
  for (const answer of (messages ?? []).flatMap((message) => message.branches ?? [message])) {
    some ||= answer.tokens !== undefined;
    delete answer.tokens;
  }
  return some;
}

export const library = new Library();
