// Shows the conversation. Each answer gets a function `changed()` that updates its view.
import { running } from './answer.js';
import { answerParts } from './answer_view.js';
import { conversation, openCallsOf, spoken } from './conversation.js';
import { $, make } from './dom.js';
import { save } from './keeping.js';
import { MarkdownView, copyButton } from './markdown_view.js';
import { pool } from './pool.js';
import { pointedToken } from './tokens_view.js';
import { count } from './words.js';

// The actions of the buttons: fork(message, element of its text), regenerate(message), edit(message, text),
// giveResult(call, text). `idle()` is false, and says why, if nothing can be sent now. app.js sets them.
export const actions = {};

const quiet = (textContent, title, onclick) => make('button', { type: 'button', className: 'quiet', textContent, title, onclick });

// Shows a form in place of `shown`, with the message's text. `send` gets the new text. A text that cannot be sent stays in
// the form.
function editor(message, shown, tools, label, send) {
  const area = make('textarea', { value: message.text, rows: Math.min(12, message.text.split('\n').length + 1), ariaLabel: 'The text of the message' });
  const form = make('form', { className: 'editor' }, area,
    make('div', {}, make('button', { type: 'submit', textContent: label }), quiet('Cancel', '', () => close())));
  const close = () => {
    form.remove();
    shown.hidden = tools.hidden = false;
    tools.querySelector('button')?.focus();
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    if (!actions.idle() || (message.role === 'user' && area.value.trim() === '')) return;
    close();
    send(area.value);
  };
  form.onkeydown = (event) => {
    if (event.key === 'Escape') { event.stopPropagation(); close(); }
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && event.target === area) { event.preventDefault(); form.requestSubmit(); }
  };
  shown.hidden = tools.hidden = true;
  shown.after(form);
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
  form.scrollIntoView({ block: 'nearest' });
}

function userView(message) {
  const bubble = make('div', { className: 'bubble text', textContent: message.text });
  const tools = make('div', { className: 'tools' },
    quiet('Edit', 'Change this message and continue from here', () => editor(message, bubble, tools, 'Send', (text) => actions.edit(message, text))),
    copyButton(() => message.text, 'the message'));
  return make('li', { className: 'user' }, bubble, tools);
}

// A form for the result of a call that nobody has answered yet.
function resultForm(call) {
  const area = make('textarea', { rows: 2, placeholder: 'What the tool returns', ariaLabel: `Result of ${call.name}` });
  const form = make('form', { className: 'editor result' }, make('div', { className: 'who', textContent: `Result of ${call.name}` }), area,
    make('div', {}, make('button', { type: 'submit', textContent: 'Give the result' })));
  form.onsubmit = (event) => {
    event.preventDefault();
    if (!actions.idle()) return;
    form.remove();
    actions.giveResult(call, area.value);
  };
  return form;
}

function assistantView(message) {
  const parts = answerParts(message);
  const results = make('div', { className: 'results' });
  const again = quiet('', '', () => actions.regenerate(message));
  const showTokens = (on) => {
    tokens.setAttribute('aria-pressed', String(on));
    parts.showTokens(on);
  };
  const tokens = quiet('Tokens', 'Shows the tokens of the answer: their probability, what else was likely, and their page in the pool',
    () => showTokens(tokens.getAttribute('aria-pressed') !== 'true'));
  tokens.setAttribute('aria-pressed', 'false');
  parts.tokens.close = () => showTokens(false);
  const fork = quiet('Fork', 'Continues the answer twice from one point. Select text to fork at its end. Otherwise it forks at the end of a running answer, or in the middle.',
    () => actions.fork(message, parts.text));
  const edit = quiet('Edit', 'Change the answer; the model continues it', () => editor(message, parts.text, tools, 'Continue from here', (text) => actions.edit(message, text)));
  const copy = copyButton(() => message.text, 'the answer');
  const tools = make('div', { className: 'tools' }, again, fork, edit, tokens, copy);
  const root = make('li', { className: 'answer' }, make('div', { className: 'who' }, parts.dot, pool.model || 'the model'),
    parts.above, parts.text, parts.tokens.root, parts.below, results, parts.line, tools);
  const after = () => {
    const writing = Boolean(message.stopper), empty = message.text === '';
    again.textContent = message.error ? 'Retry' : 'Regenerate';
    again.title = message.error ? 'Sends the request again' : 'Writes another answer in place of this one';
    again.hidden = writing;
    edit.hidden = writing || empty;
    fork.hidden = copy.hidden = empty;
    tokens.hidden = !message.tokens?.length;
    const open = writing ? [] : openCallsOf(message, conversation.messages);
    if (results.childElementCount !== open.length) results.replaceChildren(...open.map(resultForm));
  };
  message.changed = () => parts.update(root, after);
  message.changed();
  after();
  return root;
}

function toolView(message) {
  return make('li', { className: 'tool-result' }, make('details', {}, make('summary', { textContent: `Result of ${message.name || 'a tool'}` }),
    make('div', { className: 'folded text', textContent: message.text })));
}

function branchView(branch, label, { chosen = null, choose = null, group = '' } = {}) {
  const parts = answerParts(branch, { dot: false });
  const root = make('div', { className: 'branch answer' }, label && make('div', { className: 'who', textContent: label }), parts.above, parts.text, parts.below, parts.line);
  if (choose) {
    const radio = make('input', { type: 'radio', name: group, checked: chosen, onchange: choose });
    root.append(make('label', {}, radio, 'continue with this one'));
    root.classList.toggle('chosen', chosen);
    radio.addEventListener('change', () => {
      for (const other of root.parentElement.children) other.classList.toggle('chosen', other === root);
    });
  }
  branch.changed = () => parts.update(root);
  branch.changed();
  return root;
}

function forkView(message) {
  const group = `fork-${conversation.messages.indexOf(message)}`;
  const prefix = message.prefix ? make('div', { className: 'text' }) : null;
  if (prefix) new MarkdownView(prefix).update(message.prefix);
  return make('li', { className: 'answer' }, make('div', { className: 'who', textContent: 'One prefix, two answers' }), prefix,
    make('div', { className: 'branches' }, ...message.branches.map((branch, i) => branchView(branch, branch.label, {
      group, chosen: i === message.chosen, choose: () => { message.chosen = i; save(); },
    }))),
    make('div', { className: 'tools' }, copyButton(() => spoken(message))));
}

function readersView(message) {
  return make('li', { className: 'aside' },
    make('div', { className: 'who', textContent: 'Three readers of one long text. It is computed once; its pages are shared.' }),
    make('details', {}, make('summary', { textContent: `The text they share (${count(message.notes.length)} characters)` }), make('p', { textContent: message.notes })),
    make('div', { className: 'branches' }, ...message.branches.map((branch) => branchView(branch, branch.question))));
}

const views = { fork: forkView, readers: readersView, user: userView, assistant: assistantView, tool: toolView };

export function show(message) {
  $('messages').append(views[message.kind ?? message.role](message));
  $('welcome').hidden = true;
}

export function showAll() {
  pointedToken.point(null);  // its answer may be gone
  $('messages').replaceChildren();
  $('welcome').hidden = conversation.messages.length > 0;
  conversation.messages.forEach(show);
  toEnd(true);
}

// Keeps the end of the conversation in view while text grows, unless the user has scrolled up.
let atEnd = true;
export function toEnd(force = false) {
  if (force || atEnd) $('log').scrollTop = $('log').scrollHeight;
}

export function watchScrolling() {
  $('log').addEventListener('scroll', () => { atEnd = $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 40; });
  // Text is drawn after it has arrived.
  new ResizeObserver(() => { if (running.stoppers.size > 0) toEnd(); }).observe($('messages'));
}

export function notice(text, { calm = false, action = '', run = null } = {}) {
  $('notice').hidden = text === '';
  $('notice').classList.toggle('calm', calm);
  $('notice').querySelector('p').textContent = text;
  $('notice-action').hidden = !run;
  $('notice-action').textContent = action;
  $('notice-action').onclick = () => { notice(''); run(); };
}
