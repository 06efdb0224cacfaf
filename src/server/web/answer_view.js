// The parts of one answer: reasoning and tool calls (folded), its text as markdown or token by token, its cost, its colour
// in the pool.
import { make } from './dom.js';
import { MarkdownView } from './markdown_view.js';
import { hueOf } from './sequence_key.js';
import { colourOf } from './theme.js';
import { TokensView } from './tokens_view.js';
import { answerFacts, argumentsInWords, reasoningInWords } from './words.js';

// Elements that are folded away, kept while the answer grows, so that what the user has unfolded stays so.
class Folds {
  constructor(root) {
    this.root = root;
    this.folds = [];
  }

  // `entries` are {name, summary, text}.
  update(entries) {
    entries.forEach(({ name, summary, text }, i) => {
      const fold = this.folds[i] ??= this.#add(name);
      if (fold.summary.textContent !== summary) fold.summary.textContent = summary;
      if (fold.text.textContent !== text) fold.text.textContent = text;
    });
    this.root.hidden = entries.length === 0;
  }

  #add(name) {
    const fold = { summary: make('summary'), text: make('div', { className: 'folded text' }) };
    this.root.append(make('details', { className: name }, fold.summary, fold.text));
    return fold;
  }
}

export function answerParts(answer, { dot = true } = {}) {
  const reasoning = new Folds(make('div', { className: 'folds' }));
  const calls = new Folds(make('div', { className: 'folds' }));
  const text = make('div', { className: 'text' });
  const markdown = new MarkdownView(text);
  const tokens = new TokensView(answer);
  const who = make('span', { className: 'dot' });
  const line = make('p', { className: 'facts' });
  let queued = false;

  const draw = (root) => {
    queued = false;
    reasoning.update(answer.reasoning ? [{ name: 'reasoning', summary: reasoningInWords(answer), text: answer.reasoning }] : []);
    calls.update((answer.calls ?? []).map((call) => ({ name: 'call', summary: `Calls ${call.name || 'a tool'}`, text: argumentsInWords(call.arguments) })));
    markdown.update(dot ? answer.text : answer.text.trimStart());
    tokens.update();
    const facts = answerFacts(answer);
    line.textContent = facts.text;
    line.hidden = facts.text === '';
    line.classList.toggle('bad', facts.bad);
    root.classList.toggle('writing', Boolean(answer.stopper) && !answer.error);
    root.setAttribute('aria-busy', String(Boolean(answer.stopper)));
    if (answer.request) {
      const colour = colourOf(hueOf(answer.request));
      who.style.background = colour;
      root.style.setProperty('--tint', colour);
      root.title = `request ${answer.request}`;
    }
  };
  // While text arrives, it is drawn once per frame. The first and the last state are drawn at once.
  const update = (root, after = () => {}) => {
    if (!answer.stopper || document.hidden) { draw(root); after(); return; }
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { if (queued) { draw(root); after(); } });
  };
  const showTokens = (on) => {
    text.hidden = on;
    tokens.show(on);
  };
  return { above: reasoning.root, text, tokens, below: calls.root, dot: dot ? who : null, line, update, showTokens };
}
