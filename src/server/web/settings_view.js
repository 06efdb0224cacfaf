// The dialog with the settings: the system prompt, the sampling fields, tools, theme.
import { conversation } from './conversation.js';
import { $, closeOnBackdrop, make } from './dom.js';
import { markChanged, save } from './keeping.js';
import { FIELDS, readBias, readField, readStops, readTools, saveSettings, settings, writeStops } from './settings.js';
import { chooseTheme, themeChoice } from './theme.js';

// Reads a field into the settings. What is wrong is said under it when the user leaves the field, and not taken over. It is
// gone as soon as it is right: if it went when the field is left, what is pressed at that moment would move away.
function bind(input, name, read) {
  const problem = make('p', { className: 'problem', role: 'alert', id: `${input.id}-problem`, hidden: true });
  input.closest('label').append(problem);
  const take = () => {
    // A number field that is not a number has an empty value.
    if (input.validity.badInput) return `${input.closest('label').dataset.name}: that is not a number.`;
    try { saveSettings({ [name]: read(input.value) }); } catch (error) { return error.message; }
    return '';
  };
  const tell = (wrong) => {
    problem.textContent = wrong;
    problem.hidden = wrong === '';
    input.setAttribute('aria-invalid', String(wrong !== ''));
    if (wrong) input.setAttribute('aria-describedby', problem.id);
    else input.removeAttribute('aria-describedby');
  };
  input.addEventListener('input', () => { if (take() === '') tell(''); });
  input.addEventListener('change', () => tell(take()));
}

function numberField(field) {
  const input = make('input', {
    id: `set-${field.name}`, type: 'number', min: field.min, max: field.max, step: 'any', inputMode: field.whole ? 'numeric' : 'decimal',
    placeholder: field.hint, value: settings[field.name] ?? '', title: field.about,
  });
  const label = make('label', { title: field.about }, make('span', { textContent: field.label }), input);
  label.dataset.name = field.label;
  bind(input, field.name, (text) => readField(field, text));
  return label;
}

export function startSettings() {
  const dialog = $('settings');
  $('fields').append(...FIELDS.map(numberField));
  bind($('set-stop'), 'stop', readStops);
  bind($('set-logit_bias'), 'logit_bias', (text) => { readBias(text); return text; });
  bind($('set-tools'), 'tools', (text) => { readTools(text); return text; });
  $('set-system').addEventListener('input', () => { conversation.system = $('set-system').value; markChanged(); });
  $('set-system').addEventListener('change', () => {
    saveSettings({ system: conversation.system });  // for conversations to come
    if (conversation.id) save();
  });
  $('set-probabilities').addEventListener('change', () => saveSettings({ probabilities: $('set-probabilities').checked }));
  for (const radio of dialog.querySelectorAll('[name=theme]')) radio.onchange = () => chooseTheme(radio.value);
  $('settings-open').onclick = () => {
    $('set-system').value = conversation.system;
    $('set-stop').value = writeStops(settings.stop);
    $('set-logit_bias').value = settings.logit_bias;
    $('set-tools').value = settings.tools;
    $('set-probabilities').checked = settings.probabilities;
    dialog.querySelector(`[name=theme][value=${themeChoice()}]`).checked = true;
    dialog.showModal();
  };
  $('settings-close').onclick = () => dialog.close();
  closeOnBackdrop(dialog);
}
