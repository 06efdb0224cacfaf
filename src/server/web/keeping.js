// Keeps the conversation that is shown.
import { conversation, markStopped, replaceWith } from './conversation.js';
import { library } from './library.js';
import { inTab } from './storage.js';

const SAVE_MS = 500;
const ANOTHER_TAB = 'Another tab has changed or deleted this conversation. What you have here is kept as a conversation of its own.';
let savedAt = 0;
let told = null;    // the last problem, so that it is told once
let dirty = false;  // the conversation has changed since it was loaded or saved

// `onProblem` is called with a sentence when the browser does not keep it, or another tab is in the way. app.js sets it.
export const keeping = { onProblem: () => {} };

// The conversation has changed, and is saved later.
export function markChanged() { dirty = true; }

// The conversation has changed: saves it. If `now` is false, only if the last save is some time ago.
export function save(now = true) {
  markChanged();
  if (!now && Date.now() - savedAt < SAVE_MS) return;
  savedAt = Date.now();
  const { id } = conversation;
  const problem = library.save(conversation);
  dirty = problem !== null;  // there may be room later
  inTab.set('quire.current', conversation.id);
  if (problem && problem !== told) keeping.onProblem(problem);
  else if (id && id !== conversation.id) keeping.onProblem(ANOTHER_TAB);
  told = problem;
}

// Saves what is not saved yet. A tab that has changed nothing must not write: another one may have.
export function saveChanges() {
  if (dirty) save();
}

// Shows this conversation from now on. False: it is not there.
export function openConversation(id) {
  const found = id && library.load(id);
  if (!found) return false;
  markStopped(found.messages);
  replaceWith(found);
  dirty = false;
  inTab.set('quire.current', id);
  return true;
}

export function newConversation(system) {
  replaceWith({ system });
  dirty = false;
  inTab.set('quire.current', null);
}

// The conversation that this tab showed last.
export const resume = (system) => openConversation(inTab.get('quire.current')) || newConversation(system);
