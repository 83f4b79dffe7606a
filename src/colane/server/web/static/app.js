// The page: one object of what is known, drawn as a whole whenever it changes. Names are text, never markup.
import { render } from "/page/preact.js";
import { here, html, known } from "/page/common.js";
import * as acts from "/page/acts.js";
import * as cluster from "/page/cluster.js";
import * as job from "/page/job.js";
import * as nodes from "/page/nodes.js";
import * as queue from "/page/queue.js";
import * as reports from "/page/reports.js";
import * as timeline from "/page/timeline.js";
import * as usage from "/page/usage.js";

// Asked for anew this often, and then only the number of the last event where nothing has happened. Not by `/events`:
// a browser holds six connections to a scheduler for all its tabs, and a busy queue tells more than a screen shows.
const EVERY_MS = 5000;
const VIEWS = { "#/": ["Cluster", cluster], "#/queue": ["Queue", queue], "#/nodes": ["Nodes", nodes], "#/timeline": ["Timeline", timeline],
  "#/usage": ["Usage", usage], "#/reports": ["Reports", reports] };
const OF_ONE = { "#/job/": job, "#/node/": nodes };
const viewed = () => Object.entries(OF_ONE).find(([start]) => here().path.startsWith(start))?.[1] || VIEWS[here().path]?.[1] || cluster;
let asking = false, again = false;

async function load() {
  if (asking) { again = true; return; }
  asking = true;
  again = false;
  try {
    await viewed().load();
    Object.assign(known, { at: Date.now(), error: "" });
  } catch (error) { known.error = error.message; }
  asking = false;
  draw();
  if (again) load();
}

const tick = () => { if (!asking && !document.hidden && !known.signedOut) load(); };

function Page() {
  if (known.signedOut || here().path === "#/signed-out") return html`<main><h1>You are not signed in.</h1>
    <p class="lead">A link works once, for five minutes. A new one: <code>colane ui</code></p></main>`;
  const { View } = viewed(), time = new Date(known.at).toLocaleTimeString();
  return html`<header><b>Colane</b><nav aria-label="Pages">${Object.entries(VIEWS).map(([to, [name]]) =>
      html`<a key=${to} href=${to} aria-current=${VIEWS[to][1] === viewed() ? "page" : null}>${name}</a>`)}</nav>
    <span class="live">${known.at ? `as of ${time}` : ""}</span></header>
    ${known.error ? html`<div class="banner" role="status">▲ The scheduler is not heard: ${known.error}.${
      known.at ? ` Figures are of ${time}.` : ""}</div>` : ""}
    <main><${View} key=${here().path} redraw=${draw} /></main><${acts.Question} />`;
}

let frame = 0;
function draw() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    render(html`<${Page} />`, document.body);
    acts.show();
    if (viewed() === queue && !known.error && queue.isMissing()) load();
  });
}

let path = here().path;
addEventListener("hashchange", () => {
  if (path !== here().path) scrollTo(0, 0);
  path = here().path;
  draw();
  load();
});
addEventListener("scroll", () => { if (viewed() === queue) draw(); }, { passive: true });
addEventListener("resize", draw);
document.addEventListener("visibilitychange", tick);
acts.connect({ draw, changed({ jobs, refused }) {
  for (const { id } of jobs) if (!refused.some(one => one.id === id)) for (const { chosen } of [queue, reports]) chosen.delete(id);
  load();
}  });
draw();
load();
setInterval(tick, EVERY_MS);
