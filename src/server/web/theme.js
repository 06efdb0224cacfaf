// The theme: light, dark, or as the system has it. And the colours of the canvases, read from the style sheets.
import { kept } from './storage.js';

export const theme = {};

const DARK = '(prefers-color-scheme: dark)';
const MEDIA = { light: 'not all', dark: 'all', system: DARK };  // when dark.css holds

export const themeChoice = () => {
  const choice = kept.get('quire.theme');
  return choice in MEDIA ? choice : 'system';
};

let repaint = () => {};

function apply() {
  const choice = themeChoice();
  document.getElementById('dark').media = MEDIA[choice];
  document.documentElement.style.colorScheme = choice === 'system' ? '' : choice;
  readTheme();
  repaint();
}

export function chooseTheme(choice) {
  kept.set('quire.theme', choice);
  apply();
}

// `painted` is called when the colours have changed.
export function startTheme(painted) {
  repaint = painted;
  apply();
  matchMedia(DARK).addEventListener('change', apply);
  document.getElementById('dark').addEventListener('load', apply);
}

function readTheme() {
  const css = getComputedStyle(document.documentElement);
  const value = (name) => css.getPropertyValue(name).trim();
  const hues = (saturation, lightness) => {
    const all = Array.from({ length: 360 }, (_, hue) => `hsl(${hue} ${saturation} ${lightness})`);
    return (hue) => (hue < 0 ? `hsl(0 0% ${lightness})` : all[hue % 360]);
  };
  Object.assign(theme, {
    paper: value('--paper'), free: value('--free'), edge: value('--flash-edge'), flash: value('--flash'), evicted: value('--evicted'),
    focus: value('--focus'), accent: value('--accent'), line: value('--line'), muted: value('--muted'),
    held: hues(value('--held-s'), value('--held-l')), bright: hues('70%', value('--bright-l')), cached: hues(value('--cached-s'), value('--cached-l')),
  });
}

// The colour of a sequence in the page's elements. CSS variables make it follow the theme.
export const colourOf = (hue) => `hsl(${hue} var(--held-s) var(--held-l))`;
