// The dialog with the list of conversations: open, rename, delete, export, import.
import { turnTo } from './chat.js';
import { conversation } from './conversation.js';
import { $, closeOnBackdrop, make } from './dom.js';
import { saveChanges } from './keeping.js';
import { library } from './library.js';
import { ImportError, exported, imported } from './transfer.js';
import { ago, count } from './words.js';

const quiet = (textContent, label, onclick) => make('button', { type: 'button', className: 'quiet', textContent, ariaLabel: label, onclick });

// Lets the user save a text as a file.
function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  make('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const fileName = (title) => `${title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 40) || 'conversation'}.json`;

function say(text, bad = false) {
  $('library-said').textContent = text;
  $('library-said').classList.toggle('bad', bad);
  $('library-said').hidden = text === '';
}

function rename(entry, row) {
  const input = make('input', { value: entry.title, ariaLabel: 'Title', maxLength: 200 });
  const form = make('form', { className: 'renaming' }, input, make('button', { type: 'submit', textContent: 'Rename' }));
  form.onsubmit = (event) => {
    event.preventDefault();
    const title = input.value.trim();
    if (title) {
      library.rename(entry.id, title);
      if (entry.id === conversation.id) Object.assign(conversation, { title, named: true });
    }
    showList(entry.id);
  };
  form.onkeydown = (event) => { if (event.key === 'Escape') { event.preventDefault(); event.stopPropagation(); showList(entry.id); } };
  row.replaceChildren(form);
  input.select();
}

function remove(entry) {
  if (entry.id === conversation.id) turnTo();  // saves it once more, so that Undo brings back all of it
  const data = library.load(entry.id);
  library.remove(entry.id);
  showList();
  say('');
  const undo = quiet('Undo', `Undo: keep ${entry.title}`, () => {
    const problem = data && library.restore(data);
    showList(entry.id);
    say(problem ?? '', Boolean(problem));
  });
  $('library-said').replaceChildren(`"${entry.title}" was deleted. `, data ? undo : '');
  $('library-said').hidden = false;
}

// `focus`: the id of the entry that has the keyboard then.
function showList(focus = null) {
  const entries = library.list();
  $('library-list').replaceChildren(...entries.map((entry) => {
    const open = make('button', { type: 'button', className: 'entry-open', onclick: () => { turnTo(entry.id); $('library').close(); $('prompt').focus(); } },
      make('b', { textContent: entry.title }), make('span', { textContent: ago(entry.changed, Date.now()) }));
    if (entry.id === conversation.id) open.setAttribute('aria-current', 'true');
    const row = make('li', {}, open,
      quiet('Rename', `Rename ${entry.title}`, () => rename(entry, row)),
      quiet('Export', `Export ${entry.title}`, () => { const data = library.load(entry.id); if (data) download(fileName(entry.title), exported([data])); }),
      quiet('Delete', `Delete ${entry.title}`, () => remove(entry)));
    if (entry.id === focus) requestAnimationFrame(() => open.focus());
    return row;
  }));
  $('library-empty').hidden = entries.length > 0;
  $('library-export').disabled = entries.length === 0;
}

export async function importFile(file) {
  try {
    const found = imported(await file.text());
    const problem = library.add(found);
    say(problem ?? `${count(found.length)} ${found.length === 1 ? 'conversation was' : 'conversations were'} imported.`, problem !== null);
  } catch (error) {
    say(error instanceof ImportError ? `${file.name}: ${error.message}` : `${file.name} cannot be read.`, true);
  }
  showList();
}

export function startLibrary() {
  const dialog = $('library');
  $('library-open').onclick = () => {
    saveChanges();
    say('');
    showList();
    dialog.showModal();
  };
  $('library-close').onclick = () => dialog.close();
  $('library-new').onclick = () => { dialog.close(); turnTo(); $('prompt').focus(); };
  $('library-export').onclick = () => {
    const all = library.list().map(({ id }) => library.load(id)).filter(Boolean);
    download('quire-conversations.json', exported(all));
    say(`${count(all.length)} ${all.length === 1 ? 'conversation' : 'conversations'} exported.`);
  };
  $('library-import').onclick = () => $('library-file').click();
  $('library-file').onchange = async () => {
    const [file] = $('library-file').files;
    if (file) await importFile(file);
    $('library-file').value = '';
  };
  closeOnBackdrop(dialog);
  // Another tab has changed the list.
  addEventListener('storage', (event) => { if (dialog.open && event.key?.startsWith('quire.about.')) showList(); });
}
