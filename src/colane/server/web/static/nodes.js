// The nodes: all of them in a table, and how those alike are wired; one of them with who has what of it.
import { EVERY_MS, Name, byName, bytes, clock, count, get, here, html, known, lanesOf, lasting, loadNames, reservation, reserved, short } from "/page/common.js";
import { NodeButton } from "/page/acts.js";
import { Look } from "/page/look.js";
import { Spark } from "/page/charts.js";
import { Tree } from "/page/topology.js";

const SAMPLES_MS = 10000, TOLD = 3, ROWS = 60;
const NODE = "#/node/";
const WORDS = { "power-cap": "power cap", "hw-slowdown": "▲ hardware", "sync-boost": "sync boost", thermal: "▲ heat", "hw-thermal": "▲ heat (hardware)", "power-brake": "▲ power brake" };
let seen = null, whole = 0, all = null, shown = {}, rows = ROWS;

export const nodeName = () => here().path.startsWith(NODE) ? decodeURIComponent(here().path.slice(NODE.length)) : "";
export const nodeLink = (name, text = name) => html`<a class="lk" href=${NODE + encodeURIComponent(name)}><${Name} of=${text} /></a>`;

export const wanted = () => "limit=0&overview=true";

export async function load(now, isAct) {
  const name = nodeName();
  Object.assign(known, { overview: now.overview, user: now.user, isOperator: now.is_operator });
  if (isAct || now !== seen && Date.now() - whole >= EVERY_MS) {
    try {
      if (name) {
        const node = await get(`/node/${encodeURIComponent(name)}`);
        await loadNames(node.jobs.map(job => job.id));
        shown = shown.name === name ? { ...shown, node, missing: false } : { name, node, sampled: 0 };
      } else all = (await get("/nodes")).sort(byName);
    } catch (error) {
      if (error.status !== 404 && error.status !== 422) throw error;
      shown = { name, missing: true };
    }
    seen = now;
    whole = Date.now();
  }
  if (name && !shown.missing && Date.now() - shown.sampled > SAMPLES_MS) {
    shown.samples = await get(`/samples/nodes/${encodeURIComponent(name)}`);
    shown.sampled = Date.now();
  }
}

const part = (used, of) => of ? `${Math.min(1, used / of) * 100}%` : "0";
const types = ({ gpus }) => [...new Set(gpus.map(gpu => gpu.type))].join(", ");

// -- all of them

function All({ redraw }) {
  if (!all) return html`<p class="lead">Asking the scheduler…</p>`;
  if (!all.length) return html`<h1>No node is here yet.</h1><p class="lead">On a machine with GPUs: <code>colane agent</code></p>`;
  const up = all.filter(node => node.state === "up").length, alike = new Map();
  const text = (here().query.get("text") || "").toLowerCase(), some = all.filter(node => !text || `${node.name} ${node.state} ${types(node)} ${node.pool}`.toLowerCase().includes(text));
  for (const node of some) {
    const key = JSON.stringify([types(node), node.topology]);
    if (!alike.has(key)) alike.set(key, []);
    alike.get(key).push(node);
  }
  return html`<h1>${up} of ${count(all.length, "node")} ${up === 1 ? "is" : "are"} up.</h1>
    ${all.length > 8 ? html`<p class="said"><input type="search" aria-label="Name, state, type or pool" placeholder="Name, state, type or pool" value=${here().query.get("text") || ""}
      onInput=${event => location.replace(`#/nodes${event.target.value ? `?${new URLSearchParams({ text: event.target.value })}` : ""}`)} /></p>` : ""}
    ${some.length ? "" : html`<p class="lead">No node is like this.</p>`}
    <div class="tw"><table><thead><tr><th>Node</th><th>State</th><th class="r">Devices held</th><th class="r">Jobs</th><th class="r wd">Cores booked</th>
      <th class="r wd">Host memory booked</th><th class="wd">Type</th><th class="wd">Pool</th><th class="wd">Version</th></tr></thead><tbody>${some.slice(0, rows).map(node => html`<tr key=${node.name}><td>${nodeLink(node.name)}</td>
      <td class=${node.state === "up" ? "" : node.lost ? "ba" : "wa"}>${node.state === "up" ? "up" : `${node.lost ? "✕" : "▲"} ${node.state}`}${reserved(node).slice(0, 1).map(one => html` <span class="pill" title=${reserved(node).map(reservation).join("; ")}>${one.from_s * 1000 > Date.now() ? "reserved later" : "reserved"}</span>${reserved(node).length > 1 ? html` <span class="q">+${reserved(node).length - 1}</span>` : ""}`)}</td>
      <td class="r">${node.booked.gpus} of ${node.gpus.length}</td><td class="r">${node.jobs.length}</td><td class="r wd">${node.booked.cores} of ${node.cores.length}</td>
      <td class="r wd">${bytes(node.booked.host_memory_bytes)} of ${bytes(node.host_memory_bytes)}</td><td class="wd"><${Name} of=${types(node) || "no device"} /></td><td class="wd"><${Name} of=${node.pool} /></td><td class="wd">${node.agent_version || "unknown"}</td></tr>`)}</tbody></table></div>
    ${some.length > rows ? html`<p class="said"><button type="button" onClick=${() => { rows += ROWS; redraw(); }}>${Math.min(ROWS, some.length - rows)} more</button> of ${some.length}</p>` : ""}
    <h2>Topology <small>how the devices of nodes that are alike are connected, as their agents found it; GB/s in one direction</small></h2>
    ${[...alike.values()].slice(0, TOLD).map(nodes => html`<p class="said">${nodes.slice(0, TOLD).map((node, at) => html`${at ? ", " : ""}${nodeLink(node.name)}`)}${
      nodes.length > TOLD ? ` and ${nodes.length - TOLD} more` : ""}</p><${Tree} node=${nodes[0]} plain=${true} />`)}
    ${alike.size > TOLD ? html`<p class="lead">${alike.size - TOLD} more kinds: filter them</p>` : ""}
    <footer>As JSON: <a class="lk" href="/nodes">nodes</a></footer>`;
}

// -- one

function Gpus({ node, samples }) {
  const kept = new Map(known.overview.kept.map(one => [one.gpu, one]));
  return html`<div class="tw gt"><table><thead><tr><th>Device</th><th>Busy, last hour</th><th class="r">Memory</th><th class="r">Power</th><th class="r">Temperature</th><th>Slowed by</th><th>Jobs by lane</th></tr></thead>
    <tbody>${node.gpus.map(gpu => {
      const now = samples?.now.find(one => one.index === gpu.index), past = samples?.devices.find(one => one.index === gpu.index);
      const lanes = lanesOf(node).get(gpu.index) || [], hold = kept.get(`${node.name}/${gpu.index}`);
      const said = lanes.map(([, here]) => here.map(job => job.id)).map(ids => html`${ids.map((id, at) => html`${at ? " " : ""}<a class=${known.names.get(id)?.user === known.user && known.user ? "lk" : ""} href=${`#/job/${id}`}>${id}${
        lanes.length * ids.length === 1 ? html` <${Name} of=${known.names.get(id)?.name || ""} />` : ""}</a>`)}${ids.length > 1 ? " take turns" : ""}`);
      if (hold) said.push(hold.job ? html`kept for <a class="lk" href=${`#/job/${hold.job}`}>${hold.job}</a> (${hold.why})` : `kept (${hold.why})`);
      if (gpu.foreign_bytes) said.push(html`<span class="wa">▲ not Colane's: ${bytes(gpu.foreign_bytes)}</span>`);
      const hot = now?.throttle?.some(word => WORDS[word]?.startsWith("▲"));
      return html`<tr key=${gpu.index}><td><b>${gpu.index}</b></td><td class="sv"><span class="sc"><${Spark} values=${past?.busy_ratio || []} most=${1} label=${`Busy of ${gpu.index}`} />
        <span class="n3">${now && now.busy_ratio !== null ? `${Math.round(now.busy_ratio * 100)} %` : "unknown"}</span></span></td>
        <td class="r">${now && now.used_bytes !== null ? html`<span class="pb"><i style=${{ width: part(now.used_bytes, gpu.memory_bytes) }}></i></span> ${bytes(now.used_bytes)} of ` : "unknown of "}${bytes(gpu.memory_bytes)}</td>
        <td class="r">${now && now.power_w !== null ? `${Math.round(now.power_w)} W` : "unknown"}</td><td class="r">${now && now.temperature_c !== null ? `${Math.round(now.temperature_c)} °C` : "unknown"}</td>
        <td class=${hot ? "wa" : ""}>${now?.throttle ? now.throttle.map(word => WORDS[word] || word).join(", ") || "–" : "unknown"}</td>
        <td class="jl">${gpu.healthy ? "" : html`<span class="ba">✕ broken${now?.xid ? `, Xid ${now.xid}` : ""} </span>`}${said.length ? said.map((one, at) => html`${at ? " · " : ""}${one}`) : gpu.healthy ? "free" : ""}</td></tr>`;
    })}</tbody></table></div>`;
}

function socketsOf(node) {  // cores by socket, as the devices say which are near; a node without devices has one row
  const found = new Map(), known = new Set();
  for (const gpu of node.gpus) if (gpu.cores.length && !found.has(gpu.socket)) {
    found.set(gpu.socket, gpu.cores);
    gpu.cores.forEach(core => known.add(core));
  }
  const rest = node.cores.filter(core => !known.has(core));
  return [...[...found].sort((a, b) => a[0] - b[0]).map(([socket, cores]) => [`socket ${socket}`, cores]), ...rest.length ? [[found.size ? "others" : "cores", rest]] : []];
}

function Cores({ node }) {
  const holders = new Map();
  for (const job of node.jobs) for (const core of job.cores) holders.set(core, job);
  return html`<div class="tw"><div class="co">${socketsOf(node).map(([name, cores]) => {
    const runs = new Map();
    for (const core of cores) runs.set(holders.get(core) || null, (runs.get(holders.get(core) || null) || 0) + 1);
    const free = runs.get(null) || 0;
    runs.delete(null);
    return html`<div class="cr" key=${name}><span>${name}</span>${[...runs].map(([job, many]) => html`<a key=${job.id} href=${`#/job/${job.id}`} style=${{ flex: `${many} 1 0` }} title=${`${job.id} ${known.names.get(job.id)?.name || ""}: ${count(many, "core")}`}
      class=${`s${job.slots.length ? "" : " cpu"}${known.user && known.names.get(job.id)?.user === known.user ? " own" : ""}`}>${job.id}${many > 1 ? ` · ${many}` : ""}</a>`)}${
      free ? html`<i style=${{ flex: `${free} 1 0` }}>${free} free</i>` : ""}</div>`;
  })}</div></div>`;
}

function One() {
  const { name, node, samples, missing } = shown;
  if (missing) return html`<h1>There is no such node.</h1><p class="lead"><a class="lk" href="#/nodes">All nodes</a></p>`;
  if (!node || name !== nodeName()) return html`<p class="lead">Asking the scheduler…</p>`;
  const kept = known.overview.kept.filter(one => one.gpu.startsWith(`${name}/`)).length, look = known.overview.look.filter(one => one.node === name);
  const age_s = node.last_seen_s === null ? null : Math.max(0, known.overview.at_s - node.last_seen_s), use = node.bandwidth_use;
  const facts = [[count(node.gpus.length, "device"), types(node)].filter(Boolean).join(", "), count(node.cores.length, "core"), `${bytes(node.host_memory_bytes)} of host memory`];
  const words = [`${facts.join(", ")}.`, `${count(node.jobs.length, "job")} on ${node.booked.gpus} of its devices${kept ? `, ${kept} kept` : ""}.`,
    use ? `${Math.round(use.used_ratio * 100)} % of its memory bandwidth is used (by ${use.by}).` : "", age_s === null ? "" : `Heard ${lasting(age_s)} ago${node.leased && node.lease_s ? `; its lease is ${lasting(node.lease_s)}` : ""}.`];
  return html`<p class="said"><a class="lk" href="#/nodes">All nodes</a></p><div class="top"><h1><${Name} of=${name} most=${60} /> <span class="pill">${node.state}</span></h1><${NodeButton} node=${node} /></div>
    <p class="lead">${words.filter(Boolean).join(" ")}</p>
    ${reserved(node).length ? html`<p class="said">Reserved, so that jobs of others start here only if they end before: ${reserved(node).map((one, at) => html`${at ? "; " : ""}<bdi>${reservation(one)}</bdi>`)}</p>` : ""}
    <${Look} items=${look} />
    <h2>Topology <small>as the agent found it; GB/s in one direction · ▲ a job whose ways go from socket to socket</small></h2><${Tree} node=${node} />
    ${node.gpus.length ? html`<h2>Devices</h2><${Gpus} node=${node} samples=${samples} />` : ""}
    <h2>Cores <small>who has them · white: jobs without devices, which give way to training · ${node.booked.cores} of ${node.cores.length} booked</small></h2><${Cores} node=${node} />
    <h2>Messages <small>of the agent</small></h2>${node.messages.length ? html`<ul class="notes">${node.messages.map(one => html`<li key=${one}><bdi>${one}</bdi></li>`)}</ul>` : html`<p class="lead">None.</p>`}
    <footer>As JSON: <a class="lk" href=${`/node/${encodeURIComponent(name)}`}>node</a>, <a class="lk" href=${`/samples/nodes/${encodeURIComponent(name)}`}>samples</a></footer>`;
}

export const View = ({ redraw }) => nodeName() ? html`<${One} />` : html`<${All} redraw=${redraw} />`;
