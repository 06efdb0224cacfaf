// An answer token by token: the less likely a token was, the stronger its colour. The user points at one with the mouse, a
// finger or the arrow keys. The panel above the composer tells of it, and its page is marked in the pool.
import { make } from './dom.js';

// The token that the user points at: {view, answer, index} or null. token_panel.js sets `onPoint`.
export const pointedToken = {
  now: null,
  onPoint: () => {},
  point(pointed) {
    this.now = pointed;
    this.onPoint(pointed);
  },
};

// 0 for a certain token, 4 for a very unlikely one.
export const surprise = (logprob) => (logprob > -0.1 ? 0 : logprob > -0.7 ? 1 : logprob > -1.6 ? 2 : logprob > -3.2 ? 3 : 4);

export class TokensView {
  // `close` is called when the user closes the panel. The owner of the view sets it.
  constructor(answer) {
    this.answer = answer;
    this.close = () => {};
    this.root = make('div', { className: 'tokens', hidden: true, tabIndex: 0, role: 'group', ariaLabel: 'Tokens of the answer. The arrow keys go from one to the next.' });
    this.drawn = 0;
    this.at = -1;
    this.root.onpointerover = (event) => this.point(this.#indexOf(event.target));
    this.root.onpointerdown = this.root.onpointerover;
    this.root.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (!step) return;
      event.preventDefault();
      this.point(Math.max(0, Math.min(this.drawn - 1, this.at + step)));
    };
    this.root.onfocus = () => this.point(Math.max(this.at, 0));
  }

  #indexOf(element) { return element.dataset?.token === undefined ? -1 : Number(element.dataset.token); }

  show(on) {
    this.root.hidden = !on;
    this.update();
    if (on) this.root.focus();
    else if (pointedToken.now?.view === this) pointedToken.point(null);
  }

  update() {
    if (this.root.hidden) return;
    if (this.drawn === 0 && this.answer.begun) this.root.append(make('span', { className: 'given', textContent: this.answer.text.slice(0, this.answer.begun) }));
    const { tokens = [] } = this.answer;
    for (; this.drawn < tokens.length; ++this.drawn) {
      const [text, logprob] = tokens[this.drawn];
      const span = make('span', { className: `token s${surprise(logprob)}`, textContent: text || '∅' });
      span.dataset.token = this.drawn;
      this.root.append(span);
    }
  }

  point(index) {
    if (index < 0) return;
    const element = (i) => this.root.querySelector(`[data-token="${i}"]`);
    element(this.at)?.classList.remove('pointed');
    this.at = index;
    const now = element(index);
    if (!now) return;
    now.classList.add('pointed');
    now.scrollIntoView({ block: 'nearest' });
    pointedToken.point({ view: this, answer: this.answer, index });
  }
}
