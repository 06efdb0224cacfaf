// The colours of the canvases, read from style.css.

export const theme = {};

export function readTheme() {
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
