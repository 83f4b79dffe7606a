// What needs a look, as the server lists it, worst first, each with the way there.
import { html, jobLink } from "/page/common.js";
import { NodeButton } from "/page/acts.js";

const TOLD = 5;

export function Look({ items, withNode = false }) {
  return html`${items.length ? html`<ul class="look">${items.slice(0, TOLD).map((one, at) => html`<li key=${at}><span class=${one.level === "broken" ? "ba" : "wa"}>${
    one.level === "broken" ? "✕" : "▲"}</span><bdi>${one.sentence}</bdi><span class="to">${one.job !== null ? jobLink(one.job, "Job") : one.node && withNode
      ? html`<a class="lk" href=${`#/node/${encodeURIComponent(one.node)}`}>Node</a>` : ""}${
      one.act === "undrain" && withNode ? html` <${NodeButton} node=${{ name: one.node, drain: {} }} />` : ""}</span></li>`)}</ul>${
    items.length > TOLD ? html`<p class="lead">${items.length - TOLD} more</p>` : ""}` : html`<p class="lead">Nothing needs a look.</p>`}`;
}
