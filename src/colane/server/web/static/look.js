// What needs a look, as the server lists it, worst first, each with the way there; what is the same of a node's devices is one row.
import { html, jobLink } from "/page/common.js";
import { NodeButton } from "/page/acts.js";

const TOLD = 5;

function grouped(items) {
  const groups = new Map();
  items.forEach((one, at) => {
    const key = one.gpu && one.job === null ? `${one.code} ${one.node}` : at;
    if (groups.has(key)) groups.get(key).like += 1; else groups.set(key, { one, like: 0 });
  });
  return [...groups.values()];
}

export function Look({ items, withNode = false }) {
  const all = grouped(items), left = all.slice(TOLD).reduce((sum, { like }) => sum + 1 + like, 0);
  return html`${all.length ? html`<ul class="look">${all.slice(0, TOLD).map(({ one, like }, at) => html`<li key=${at}><span class=${one.level === "broken" ? "ba" : "wa"}>${
    one.level === "broken" ? "✕" : "▲"}</span><span><bdi>${one.sentence}</bdi>${like ? html` <span class="q">and ${like} like it</span>` : ""}</span><span class="to">${one.job !== null ? jobLink(one.job, "Job") : one.node && withNode
      ? html`<a class="lk" href=${`#/node/${encodeURIComponent(one.node)}`}>Node</a>` : ""}${
      one.act === "undrain" && withNode ? html` <${NodeButton} node=${{ name: one.node, drain: {} }} />` : ""}</span></li>`)}</ul>${
    left ? html`<p class="lead">${left} more</p>` : ""}` : html`<p class="lead">Nothing needs a look.</p>`}`;
}
