// Many nodes: a cell for each device, eight in a row, as few paths as there are kinds of cells.
import { html } from "/page/common.js";

const CELL = 6, HIGH = 14, GAP = 14, NAMED = 125, EIGHT = 8;
const KINDS = [["h", "held"], ["s", "suspended jobs alone"], ["f", "free"], ["c", "free, its node takes no jobs"], ["b", "✕ broken"], ["l", "▲ on a lost node"]];

export function Cells({ cells, look }) {
  const named = cells.nodes.length <= NAMED, wide = Math.max(280, (document.querySelector("main")?.clientWidth || innerWidth) - (innerWidth > 760 ? 48 : 32)), own = new Set(cells.own), marked = new Set(look.map(one => one.gpu).filter(Boolean));
  const rows = Math.max(1, ...cells.devices.map(one => Math.ceil(one.length / EIGHT))), block = EIGHT * CELL + GAP, tall = rows * (HIGH + 5) + (named ? 18 : 6), many = Math.max(1, Math.floor((wide + GAP) / block));
  const paths = Object.fromEntries(KINDS.map(([kind]) => [kind, ""])), counts = {};
  let heads = "", feet = "";
  cells.devices.forEach((letters, at) => [...letters].forEach((letter, i) => {
    const x = at % many * block + i % EIGHT * CELL, y = Math.floor(at / many) * tall + Math.floor(i / EIGHT) * (HIGH + 5) + 3, gpu = `${cells.nodes[at]}/${i}`;
    counts[letter] = (counts[letter] || 0) + 1;
    paths[letter] += letter === "b" ? `M${x} ${y - 2}h5v${HIGH + 4}h-5z` : `M${x + 0.5} ${y + 0.5}h4v${HIGH - 1}h-4z`;
    if (own.has(gpu)) heads += `M${x} ${y - 2}h5v3h-5z`;
    if (marked.has(gpu) && letter !== "b") feet += `M${x} ${y + HIGH + 2}h5v-3h-5z`;
  }));
  const nodeAt = event => cells.nodes[Math.floor(event.offsetY / tall) * many + Math.min(many - 1, Math.floor(event.offsetX / block))];
  return html`<p class="key">${KINDS.filter(([kind]) => counts[kind]).map(([kind, word]) => html`<span key=${kind}><svg width="12" height="14"><path class=${`c${kind}`} d="M0.5 0.5h8v12h-8z" /></svg> ${word} ${counts[kind]}</span>`)}
      ${own.size ? html`<span><svg width="12" height="14"><path class="fa" d="M0 5h9v3h-9z" /></svg> mark above: yours ${own.size}</span>` : ""}${feet ? html`<span><svg width="12" height="14"><path class="cw" d="M0 5h9v3h-9z" /></svg> ▲ mark below: needs a look</span>` : ""}</p>
    <div class="tw"><svg class="all" width=${wide} height=${Math.ceil(cells.nodes.length / many) * tall} role="img" aria-label=${`${cells.devices.reduce((sum, one) => sum + one.length, 0)} devices of ${cells.nodes.length} nodes: ${KINDS.filter(([kind]) => counts[kind]).map(([kind, word]) => `${counts[kind]} ${word}`).join(", ")}`}
      onClick=${event => { const name = nodeAt(event); if (name) location.hash = `#/node/${encodeURIComponent(name)}`; }} onMouseMove=${event => { event.currentTarget.firstElementChild.textContent = nodeAt(event) || ""; }}><title></title>
      ${KINDS.map(([kind]) => html`<path key=${kind} class=${`c${kind}`} d=${paths[kind]} />`)}<path class="fa" d=${heads} /><path class="cw" d=${feet} />
      ${named ? cells.nodes.map((name, at) => html`<text key=${name} x=${at % many * block} y=${Math.floor(at / many) * tall + rows * (HIGH + 5) + 9}>${name.length > 8 ? `${name.slice(0, 3)}…${name.slice(-4)}` : name}</text>`) : ""}</svg></div>
    <p class="lead small">A click opens a node. <a class="lk" href="#/nodes">All by name</a></p>`;
}
