// Shows the conversation. Each answer gets a function `changed()` that updates its view.
import { conversation, save, spoken } from './conversation.js';
import { $, make } from './dom.js';
import { pool } from './pool.js';
import { hueOf } from './sequence_key.js';
import { colourOf } from './theme.js';
import { answerFacts, count } from './words.js';

// The actions of the buttons: fork(message, element of its text). app.js sets them.
export const actions = { fork: () => {} };

// The parts of one answer: its text, its cost, its colour in the pool.
function answerParts(answer, { dot = true } = {}) {
  const text = make('div', { className: 'text' });
  const who = make('span', { className: 'dot' });
  const line = make('p', { className: 'facts' });
  const update = (root) => {
    const shown = dot ? answer.text : answer.text.trimStart();
    if (text.textContent !== shown) text.textContent = shown;
    const facts = answerFacts(answer);
    line.textContent = facts.text;
    line.hidden = facts.text === '';
    line.classList.toggle('bad', facts.bad);
    root.classList.toggle('writing', Boolean(answer.stopper));
    root.setAttribute('aria-busy', String(Boolean(answer.stopper)));
    if (answer.request) {
      const colour = colourOf(hueOf(answer.request));
      who.style.background = colour;
      root.style.setProperty('--tint', colour);
      root.title = `request ${answer.request}`;
    }
  };
  return { text, dot: dot ? who : null, line, update };
}

function copyButton(text) {
  const button = make('button', { type: 'button', className: 'quiet', textContent: 'Copy' });
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Copying is not allowed here';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  };
  return button;
}

function userView(message) {
  return make('li', { className: 'user text', textContent: message.text });
}

function assistantView(message) {
  const parts = answerParts(message);
  const fork = make('button', {
    type: 'button', className: 'quiet', textContent: 'Fork',
    title: 'Continues the answer twice from one point. Select text to fork at its end. Otherwise it forks at the end of a running answer, or in the middle.',
    onclick: () => actions.fork(message, parts.text),
  });
  const tools = make('div', { className: 'tools' }, fork, copyButton(() => message.text));
  const root = make('li', { className: 'answer' }, make('div', { className: 'who' }, parts.dot, pool.model || 'the model'), parts.text, parts.line, tools);
  message.changed = () => {
    parts.update(root);
    tools.hidden = message.text === '' && !message.stopper;
  };
  message.changed();
  return root;
}

function branchView(branch, label, { chosen = null, choose = null, group = '' } = {}) {
  const parts = answerParts(branch, { dot: false });
  const root = make('div', { className: 'branch answer' }, label && make('div', { className: 'who', textContent: label }), parts.text, parts.line);
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
  return make('li', { className: 'answer' }, make('div', { className: 'who', textContent: 'One prefix, two answers' }),
    message.prefix ? make('div', { className: 'text', textContent: message.prefix }) : null,
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

const views = { fork: forkView, readers: readersView, user: userView, assistant: assistantView };

export function show(message) {
  $('messages').append(views[message.kind ?? message.role](message));
  $('welcome').hidden = true;
}

export function showAll() {
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
}

export function notice(text, { calm = false, action = '', run = null } = {}) {
  $('notice').hidden = text === '';
  $('notice').classList.toggle('calm', calm);
  $('notice').querySelector('p').textContent = text;
  $('notice-action').hidden = !run;
  $('notice-action').textContent = action;
  $('notice-action').onclick = () => { notice(''); run(); };
}
