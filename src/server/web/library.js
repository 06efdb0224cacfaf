// The conversations that the browser keeps: `quire.conversation.ID` has the messages, `quire.about.ID` what the list shows.
// Several tabs may use it at the same time, and may have the same conversation.
import { titleOf } from './conversation.js';
import { kept } from './storage.js';
import { checked, plain } from './transfer.js';

const WORDS = {
  full: 'The browser has no room left: the newest messages are not kept. Delete or export conversations.',
  denied: 'The browser does not let this page keep anything. Conversations are gone when the tab is closed.',
};
const NO_ROOM_TO_IMPORT = 'The browser has no room for these conversations: none was imported. Delete or export others first.';

export class Library {
  constructor(storage = kept, now = () => Date.now()) {
    this.storage = storage;
    this.now = now;
  }

  // {id, title, named, created, changed}, the newest first.
  list() {
    return this.storage.names('quire.about.').map((name) => ({ ...this.storage.get(name), id: name.slice('quire.about.'.length) }))
      .filter(({ changed }) => Number.isFinite(changed)).sort((a, b) => b.changed - a.changed || (a.id < b.id ? 1 : -1));
  }

  // Null if it is gone or damaged.
  load(id) {
    const data = this.storage.get(`quire.conversation.${id}`);
    if (!data) return null;
    const changed = this.storage.get(`quire.about.${id}`)?.changed;
    try { return { ...checked(data), id, ...(Number.isFinite(changed) && { changed }) }; } catch { return null; }
  }

  // Keeps the conversation and gives it an id if it has none. If another tab has changed or deleted it since it was loaded, it
  // gets a new id, so that neither tab's messages are lost. Returns a sentence for the user if it is not kept.
  save(conversation) {
    if (conversation.messages.length === 0 && !conversation.id) return null;
    if (conversation.id) {
      const stored = this.storage.get(`quire.about.${conversation.id}`);
      if (stored?.changed !== conversation.changed) conversation.id = null;
      else if (stored?.named) Object.assign(conversation, { title: stored.title, named: true });  // another tab may have renamed it
    }
    // Later than the version before even within a millisecond: two versions never have the same time.
    return WORDS[this.#keep(conversation, Math.max(this.now(), (conversation.changed ?? 0) + 1))] ?? null;
  }

  // Brings back what was removed, as it was.
  restore(conversation) { return WORDS[this.#keep(conversation, conversation.changed ?? this.now())] ?? null; }

  // Takes over conversations of a file with their own dates: all, or none if there is no room. Returns a sentence for the user
  // if they are not kept.
  add(conversations) {
    const added = [];
    let problem = null;
    for (const each of conversations) {
      const copy = { ...each, id: null, title: each.title ?? '', named: each.named ?? false, system: each.system ?? '' };
      problem = this.#keep(copy, Math.min(each.changed ?? each.created ?? Infinity, this.now()));
      added.push(copy.id);
      if (problem === 'full') break;
    }
    if (problem !== 'full') return WORDS[problem] ?? null;
    for (const id of added) this.remove(id);
    return NO_ROOM_TO_IMPORT;
  }

  // Writes the messages and then what the list shows, so that the list has no entry without messages.
  #put(id, data) {
    const { storage } = this;
    const { title, named, created, changed } = data;
    const [about, conversation] = [`quire.about.${id}`, `quire.conversation.${id}`];
    const shown = { title, named, created, changed };
    let problem = storage.set(conversation, data);
    if (problem) {
      // What the browser has of it is the last version that fitted. This tab works on with the newest.
      storage.hold(about, shown);
      return problem;
    }
    problem = storage.set(about, shown);
    if (problem && !storage.has(about)) {
      // Messages that no list shows would only take room.
      storage.remove(conversation);
      storage.hold(conversation, data);
    }
    return problem;
  }

  // Null, or why the browser does not keep it.
  #keep(conversation, changed) {
    conversation.id ??= `${this.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
    conversation.created ||= changed;
    conversation.changed = changed;
    if (!conversation.named) conversation.title = titleOf(conversation.messages) || 'A conversation';
    const { id, title, named, created, system } = conversation;
    const data = { title, named, created, changed, system, messages: plain(conversation.messages) };
    const put = () => this.#put(id, data);
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
    return problem;
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
    this.storage.set(`quire.about.${id}`, { ...about, title, named: true });
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
