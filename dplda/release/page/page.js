'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const find = id => document.getElementById(id);
const choice = find('topic'), slider = find('weight');
const percent = x => (100 * x).toFixed(x < 0.01 ? 2 : 1) + '%';

// Texts become text nodes, never markup.
function html(name, attributes, ...inside) {
  const node = document.createElement(name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  node.append(...inside);
  return node;
}
function svg(name, attributes, ...inside) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  node.append(...inside);
  return node;
}

function wordsOf(topic) {
  const weight = Number(slider.value);
  const rows = topic.word.map((w, i) => {
    const word = data.words[w], p = topic.p[i];
    const relevance = Math.log(p) - (1 - weight) * Math.log(word.p);
    return {word: word.word, p, all: word.p, stands: topic.stands[i], relevance};
  });
  return rows.sort((a, b) => b.relevance - a.relevance).slice(0, data.n_shown);
}

function row(word, longest) {
  const width = (100 * word.p / longest).toFixed(1);
  const place = Math.min(98.4, 100 * word.all / longest).toFixed(1);
  const bar = svg('svg', {class: 'bar', viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true'},
    svg('rect', {class: 'main', y: 2, width, height: 6}),
    svg('rect', {class: 'tick', x: place, width: 1.6, height: 10}));
  return html('tr', {class: word.stands ? '' : 'noise'},
    html('th', {scope: 'row'}, html('bdi', {}, word.word), word.stands ? '' : ' (noise?)'),
    html('td', {class: 'b'}, bar),
    html('td', {class: 'r'}, percent(word.p)),
    html('td', {class: 'r'}, percent(word.all)),
    html('td', {class: 'r x'}, (word.p / word.all).toPrecision(2) + ' ×'));
}

function show() {
  const topic = data.topics.find(t => t.topic === Number(choice.value));
  const rows = wordsOf(topic);
  const longest = Math.max(...rows.map(r => Math.max(r.p, r.all)));
  const n = rows.filter(r => r.stands).length;
  find('rows').replaceChildren(...rows.map(r => row(r, longest)));
  find('shown').textContent = 'Topic ' + topic.topic + ', ' + topic.name + ': ' + rows.length + ' words' +
    (data.noise_known ? ', of which ' + n + ' stand out of the noise.' : '.') +
    (topic.weak ? ' This topic is not shown to be more than noise.' : '');
  find('value').textContent = Number(slider.value).toFixed(2);
  for (const a of document.querySelectorAll('.map a')) a.classList.toggle('on', Number(a.dataset.k) === topic.topic);
}

for (const topic of data.topics) {
  const name = topic.topic + ' ' + topic.name + (topic.weak ? ' (may be noise)' : '');
  choice.append(html('option', {value: topic.topic}, name));
}
document.addEventListener('click', event => {
  const link = event.target.closest('[data-k]');
  if (!link) return;
  event.preventDefault();
  choice.value = link.dataset.k;
  show();
  find('words').scrollIntoView();
  choice.focus({preventScroll: true});
});
choice.addEventListener('change', show);
slider.addEventListener('input', show);

let closed = [];  // on paper, everything is open
addEventListener('beforeprint', () => {
  closed = [...document.querySelectorAll('details:not([open])')];
  for (const part of closed) part.open = true;
});
addEventListener('afterprint', () => { for (const part of closed) part.open = false; });
find('save').href = 'data:application/json;charset=utf-8,' + encodeURIComponent(find('data').textContent);
document.documentElement.classList.remove('nojs');
show();
