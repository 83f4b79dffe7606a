// Who was on which device when, and what was decided around a moment: the one that is pointed at, else now.
import { Name, byName, clock, count, get, here, html, jobLink, known, moment, reservation, reserved, short } from "/page/common.js";

const SPANS = [["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["7 d", 604800]];
const EVERY_MS = 10000, NARROW_S = 6300, JOBS = 2000, ROWS = 40, BLOCKS = 400, LATER = 3, MOVES = 8, LEFT = 96, LANE = 16, ROW = 22;
const STEPS = [300, 600, 1800, 3600, 7200, 14400, 43200, 86400];
let shown = null, asked = "", loaded = 0, day = null, dayLoaded = 0, moves = null, movesAt;

const now_s = () => Date.now() / 1000;
function address() {  // what the address asks for: a time, and a moment in it
  const { query } = here(), wide = Number(query.get("span")) || 21600, at = Number(query.get("at")) || null;
  const span = matchMedia("(max-width:760px)").matches ? Math.min(wide, NARROW_S) : wide;
  const until = Number(query.get("until")) || (at && at < now_s() - span ? Math.min(now_s(), at + span / 2) : null);
  return { span, wide, at, until, node: query.get("node") || "", isOpen: !query.get("span") && !until };
}

const LEAST_S = 600;
function since({ since_s: asked_s, until_s, jobs, marks }) {  // where nobody says for how long: the time there is
  const first = Math.min(...jobs.flatMap(job => job.spans.map(one => one.since_s)), ...marks.map(one => one.since_s));
  return Math.max(asked_s, until_s - Math.max(LEAST_S, (until_s - first) * 1.05));
}

export const wanted = () => "limit=0&overview=true";

export async function load(rows) {
  const { span, until, at, node: only, isOpen } = address(), key = `${span} ${until} ${only}`;
  if (!shown || key !== asked || Date.now() - loaded > EVERY_MS) {
    const end = until ? `&until_s=${until}` : "", of = only ? `&node=${encodeURIComponent(only)}` : "";
    const [timeline, cluster, nodes] = await Promise.all([get(`/timeline?last_s=${span}&limit=${JOBS}${end}${of}`), get(`/samples/cluster?last_s=${span}${end}`),
      get("/nodes").then(all => all.sort(byName).map(node => ({ name: node.name, gpus: node.gpus.map(gpu => gpu.index), reservations: node.reservations || [] })))]);
    for (const node of nodes) for (const one of node.reservations) if (one.from_s < timeline.until_s && one.to_s > timeline.since_s)
      for (const index of node.gpus) timeline.marks.push({ gpu: `${node.name}/${index}`, kind: "reserved", said: reservation(one), since_s: one.from_s, until_s: one.to_s });
    shown = { ...timeline, cluster, nodes, now: rows.overview };
    if (isOpen && timeline.jobs.length) shown.since_s = since(timeline);
    Object.assign(known, { user: rows.user, isOperator: rows.is_operator });
    asked = key;
    loaded = Date.now();
    movesAt = undefined;
  }
  if (Date.now() - dayLoaded > 6 * EVERY_MS) {
    day = await get("/samples/cluster?last_s=86400");
    dayLoaded = Date.now();
  }
  if (movesAt !== at) {
    moves = await get(`/timeline/moves?limit=${MOVES}${at ? `&at_s=${at}` : ""}`);
    movesAt = at;
  }
}

function to(changes) {
  const { query } = here();
  for (const [key, value] of Object.entries(changes)) if (value) query.set(key, value); else query.delete(key);
  return `#/timeline${`${query}` ? `?${query}` : ""}`;
}
const go = changes => location.replace(to(changes));

function value(samples, key, at_s) {  // the last that is known shortly before
  const i = Math.floor((at_s - samples.start_s) / samples.step_s), values = samples[key];
  for (let back = 0; back < 3; back++) if (values[i - back] !== null && values[i - back] !== undefined) return values[i - back];
  return null;
}

function rowsOf({ jobs, marks, nodes, since_s, until_s }, only) {  // a row for each device, or for neighbours that had the same jobs at the same times
  const held = new Map();
  for (const job of jobs) for (const span of job.spans) for (const gpu of span.gpus) {
    if (!held.has(gpu)) held.set(gpu, []);
    held.get(gpu).push({ job, from: Math.max(span.since_s, since_s), to: Math.min(span.until_s ?? until_s, until_s), open: span.until_s === null });
  }
  for (const mark of marks) {  // what held a device without being on it
    if (!held.has(mark.gpu)) held.set(mark.gpu, []);
    held.get(mark.gpu).push({ mark, job: { id: mark.said || (mark.kind === "broken" ? -1 : -2 - (mark.job || 0)) }, from: Math.max(mark.since_s, since_s), to: Math.min(mark.until_s ?? until_s, until_s), open: false });
  }
  const rows = [], gone = [...held.keys()].map(gpu => gpu.slice(0, gpu.lastIndexOf("/"))).filter(name => !nodes.some(node => node.name === name));
  for (const node of [...nodes, ...[...new Set(gone)].map(name => ({ name, gpus: [...held.keys()].filter(gpu => gpu.startsWith(`${name}/`)).map(gpu => Number(gpu.split("/").at(-1))).sort((a, b) => a - b) }))]) {
    if (only && node.name !== only) continue;
    let last = null;
    for (const index of node.gpus) {
      const mine = (held.get(`${node.name}/${index}`) || []).sort((a, b) => a.from - b.from || (a.job.id > b.job.id) - (a.job.id < b.job.id));
      if (!mine.length) { last = null; continue; }
      const key = mine.map(one => `${one.job.id} ${one.from} ${one.to}`).join();
      if (last && last.key === key && last.to === index - 1) { last.to = index; continue; }
      const lanes = [];  // what overlaps lies below
      for (const one of mine) {
        one.lane = lanes.findIndex(end => end <= one.from);
        if (one.lane < 0) one.lane = lanes.length;
        lanes[one.lane] = one.to;
      }
      for (const one of mine) one.alone = mine.every(other => other === one || other.from >= one.to || other.to <= one.from);
      rows.push(last = { node: node.name, from: index, to: index, key, blocks: mine, lanes: lanes.length });
    }
  }
  return rows;
}

function joined(placed) {  // a gang is one block over the rows that it has for itself
  let before = null;
  for (const row of placed) {
    row.last = new Map();
    for (const one of row.blocks) {
      const key = `${one.job.id} ${one.from} ${one.to}`, bottom = row.y + (row.lanes === 1 ? ROW - 5 : LANE - 2), start = before?.node === row.node && before.to === row.from - 1 ? before.last.get(key) : null;
      one.high = (row.lanes === 1 ? ROW - 5 : LANE - 2);
      if (one.alone && start) {
        start.block.high = bottom - start.y;
        one.hidden = true;
        row.last.set(key, start);
      } else if (one.alone) row.last.set(key, { block: one, y: row.y });
    }
    before = row;
  }
}

function area(samples, values, x, top, high, most) {
  let path = "", start = null;
  values.forEach((each, i) => {
    const at = x(samples.start_s + i * samples.step_s);
    if (each === null) { if (start !== null) path += `V${top + high}H${start}Z`; start = null; return; }
    const y = (top + high - each / most * high).toFixed(1);
    path += start === null ? `M${at.toFixed(1)} ${y}` : `L${at.toFixed(1)} ${y}`;
    start ??= at.toFixed(1);
  });
  return start === null ? path : `${path}V${top + high}H${start}Z`;
}

function Strip({ wide, from, until }) {  // a day, and which part of it is shown
  const end = day.start_s + (day.working.length - 1) * day.step_s, most = Math.max(1, ...day.devices.filter(each => each !== null));
  const x = at => LEFT + (at - day.start_s) / (end - day.start_s) * (wide - LEFT - 4);
  if (from < day.start_s - 60) return "";
  return html`<svg width=${wide} height="34" role="img" aria-label="Devices at work in the last 24 h" onClick=${event => go({ at: Math.round(day.start_s + (event.offsetX - LEFT) / (wide - LEFT - 4) * (end - day.start_s)) })}>
    <text x=${LEFT - 8} y="20" text-anchor="end">last 24 h</text><path class="ar" d=${area(day, day.working, x, 3, 24, most)} /><rect class="win" x=${x(from)} y="1" width=${Math.max(3, x(Math.min(until, end)) - x(from))} height="28" /></svg>`;
}

function Lanes({ rows, wide, from, until, at }) {
  const { cluster } = shown, x = s => LEFT + (s - from) / (until - from) * (wide - LEFT - 4), step = STEPS.find(each => (until - from) / each <= wide / 110) || 86400;
  const offset_s = new Date(until * 1000).getTimezoneOffset() * 60, ticks = [];
  for (let s = Math.ceil((from - offset_s) / step) * step + offset_s; s < until; s += step) ticks.push(s);
  let y = 30, node = "";
  const placed = rows.map(row => {
    if (row.node !== node && node) y += 8;
    const one = { ...row, y, isFirst: row.node !== node, high: Math.max(ROW, row.lanes * LANE + 4) };
    node = row.node;
    one.blocks = row.blocks.map(block => ({ ...block }));
    y += one.high;
    return one;
  });
  joined(placed);
  // Those that are widest have a link and a name each; all others of a row are one shape, so that none looks free.
  const wides = placed.flatMap(row => row.blocks.filter(one => !one.hidden)).sort((a, b) => (b.to - b.from) - (a.to - a.from)), named = new Set(wides.slice(0, BLOCKS));
  const parts = [["Waiting", "jobs", cluster.waiting, 36], ["At work", "devices", cluster.working, 36]].filter(([, , values]) => values.some(each => each !== null));
  const tops = parts.map((_, i) => y + 12 + i * 52), high = y + parts.length * 52 + 8;
  const point = event => Math.round(from + (event.offsetX - LEFT) / (wide - LEFT - 4) * (until - from));
  return html`<svg class="tl" width=${wide} height=${high} role="img" aria-label=${`Who was on which device from ${moment(from)} to ${moment(until)}`}
      onClick=${event => { if (event.offsetX >= LEFT && !event.target.closest("a")) go({ at: point(event) }); }}>
    ${ticks.map(s => html`<path class="gr" d=${`M${x(s)} 16V${high}`} /><text x=${x(s)} y="12" text-anchor=${x(s) > wide - 30 ? "end" : "middle"}>${step >= 86400 ? new Date(s * 1000).toLocaleDateString([], { month: "short", day: "numeric" }) : new Date(s * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}</text>`)}
    ${placed.map(row => html`${row.isFirst ? html`<text class="tt" x="0" y=${row.y + 14}>${row.node.length > 9 ? `${row.node.slice(0, 4)}…${row.node.slice(-4)}` : row.node}<title>${row.node}</title></text>` : ""}
      <text x=${LEFT - 8} y=${row.y + 14} text-anchor="end">${row.from === row.to ? row.from : `${row.from}–${row.to}`}</text><path class="gr" d=${`M${LEFT} ${row.y + row.high - 1}H${wide}`} />
      <path class="gp" d=${row.blocks.filter(one => !one.hidden && !named.has(one)).map(one => `M${x(one.from).toFixed(1)} ${row.y + one.lane * LANE}h${Math.max(1.5, x(one.to) - x(one.from) - 0.5).toFixed(1)}v${one.high}H${x(one.from).toFixed(1)}z`).join("")} />
      ${row.blocks.map(block => {
        const { job, mark, from: start, to: end, lane, high: tall, hidden } = block;
        if (hidden || !named.has(block)) return "";
        const left = x(start), width = Math.max(1.5, x(end) - left - 0.5), own = known.user && job.user === known.user, top = row.y + lane * LANE;
        if (mark) return html`<g><rect class=${mark.kind === "broken" ? "gp bd" : "gp fe kp"} x=${left} y=${top} width=${width} height=${tall}><title>${mark.said ? `reserved, ${mark.said}` : `${mark.kind === "broken" ? "broken" : mark.job ? `kept for job ${mark.job}` : "kept"}: ${moment(start)} to ${moment(end)}`}</title></rect>
          ${width > 60 ? html`<text class=${mark.kind === "broken" ? "on" : ""} x=${left + 4} y=${top + 11.5}>${mark.said ? "reserved" : mark.kind === "broken" ? "✕ broken" : mark.job ? `for ${mark.job}` : "kept"}</text>` : ""}</g>`;
        return html`<a href=${`#/job/${job.id}`}><rect class=${own ? "gp me" : "gp"} x=${left} y=${top} width=${width} height=${tall}><title>${`${job.id} ${job.name} of ${job.user || "no user"}: ${moment(start)} to ${moment(end)}`}</title></rect>${
          width > 34 ? html`<svg x=${left + 4} y=${top} width=${width - 6} height="16"><text class="jb" y="11.5">${label(job, width)}</text></svg>` : ""}</a>`;
      })}`)}
    ${parts.map(([name, unit, values, tall], i) => {
      const most = Math.max(1, ...values.filter(each => each !== null), ...(name === "At work" ? cluster.devices.filter(each => each !== null) : []));
      return html`<text class="tt" x="0" y=${tops[i] + 12}>${name}</text><text x=${LEFT - 8} y=${tops[i] + 26} text-anchor="end">${unit}</text><text x=${LEFT - 8} y=${tops[i] + 12} text-anchor="end">${short(most)}</text>
        <path class="ar" d=${area(cluster, values, x, tops[i], tall, most)} />`;
    })}
    <path class="cur" d=${`M${x(at)} 16V${high}`} /></svg>${
    wides.length > BLOCKS ? html`<p class="lead small">The ${wides.length - BLOCKS} shortest of ${wides.length} blocks have no name and no link: choose a shorter time${shown.nodes.length > 1 ? " or a node" : ""}.</p>` : ""}`;
}

function label(job, width) {  // about 6.5 px a character
  const most = Math.floor((width - 6) / 6.5), whole = `${job.id} ${job.name}`, all = [...whole];
  if (all.length <= most) return whole;
  return most > 12 ? `${all.slice(0, Math.ceil(most / 2) - 1).join("")}…${all.slice(-Math.floor(most / 2)).join("")}` : String(job.id).slice(0, most);
}

const Move = ({ one }) => html`<li key=${one.number}><time><a class="lk" href=${to({ at: Math.ceil(one.at_s) })}>${moment(one.at_s)}</a></time><span>${jobLink(one.job)} <${Name} of=${one.name} /> <bdi>${one.sentence || one.state}</bdi></span></li>`;

export function View() {
  if (!shown || !day || !moves) return html`<p class="lead">Asking the scheduler…</p>`;
  const { wide, at, node } = address(), from = shown.since_s, until = shown.until_s, cursor = Math.min(Math.max(at ?? until, from), until), { cluster } = shown;
  const all = rowsOf(shown, node), rows = all.slice(0, ROWS), drawn = Math.max(280, (document.querySelector("main")?.clientWidth || innerWidth) - (innerWidth > 760 ? 48 : 32));
  const on = new Set(all.flatMap(row => row.blocks.filter(one => !one.mark && one.from <= cursor && (one.to > cursor || one.open)).flatMap(() => Array.from({ length: row.to - row.from + 1 }, (_, i) => `${row.node}/${row.from + i}`)))).size;
  const present = !at && !address().until, devices = present ? shown.now.devices.total : value(cluster, "devices", cursor), working = present ? shown.now.devices.working : value(cluster, "working", cursor), waiting = present ? shown.now.waiting : value(cluster, "waiting", cursor), busy = value(cluster, "busy_ratio", cursor), held = node || working === null ? on : Math.round(working);
  const coming = new Map();
  for (const one of shown.nodes) for (const each of reserved(one)) if (each.from_s > shown.until_s) coming.set(reservation(each), [...coming.get(reservation(each)) || [], one.name]);
  const later = [...coming];
  const isShort = address().isOpen && until - from < address().span * 0.99, next = moves.after[0], last = moves.before.filter(one => one.at_s < cursor - 1).at(-1), isNow = !at || at >= until - 1;
  return html`<div class="top"><div><h1>${isNow ? "Now" : `At ${moment(cursor)}`}, ${!node && devices !== null ? `${held} of ${count(Math.round(devices), "device")}` : count(held, "device")}${node ? " of " : ""}${node ? html`<bdi>${node}</bdi>` : ""} ${isNow ? held === 1 ? "works" : "work" : "worked"}${
      waiting === null ? "" : ` and ${count(Math.round(waiting), "job")} ${isNow ? Math.round(waiting) === 1 ? "waits" : "wait" : "waited"}`}.</h1>
      <p class="lead">Point at a moment, or take decision after decision.</p></div>
    <span class="acts">${SPANS.map(([word, s]) => html`<a class=${`btn${s === wide && !isShort ? " on" : ""}`} key=${s} aria-current=${s === wide && !isShort ? "true" : null} href=${to({ span: s, until: "" })}>${word}</a>`)}
      <a class="btn" aria-disabled=${last ? null : "true"} href=${last ? to({ at: Math.ceil(last.at_s) }) : null}>← decision</a><a class="btn" aria-disabled=${next ? null : "true"} href=${next ? to({ at: Math.ceil(next.at_s) }) : null}>decision →</a>
      <a class="btn" href=${to({ at: "", until: "" })}>Now</a></span></div>
    <p class="said"><label>Node <select onChange=${event => go({ node: event.target.value })}><option value="">all</option>${shown.nodes.map(one => html`<option key=${one.name} value=${one.name} selected=${one.name === node}>${one.name}</option>`)}</select></label></p>
    <div class="tw"><${Strip} wide=${drawn} from=${from} until=${until} /></div>
    <div class="fig"><div><span>${clock(cursor)}</span><em>${held} <small>${devices === null ? "devices at work" : `of ${count(Math.round(devices), "device")} at work`}</small></em></div>
      <div><span>Waiting</span><em>${waiting === null ? "unknown" : Math.round(waiting)} <small>jobs</small></em></div>
      <div><span>Busy</span><em>${busy === null ? "unknown" : html`${Math.round(busy * 100)} <small>% of the time of devices at work</small>`}</em></div></div>
    ${rows.length ? html`<div class="tw"><${Lanes} rows=${rows} wide=${drawn} from=${from} until=${until} at=${cursor} /></div>` : html`<p class="lead">No job held a device in this time.</p>`}
    <p class="lead small">A row is a device, or neighbours that had the same jobs; what lies below one another was there at once, and a gang is one block. Dashed is kept for a job, or reserved, red and ✕ broken; else white is free${all.length > ROWS ? `; ${count(all.length - ROWS, "row")} more: choose a node` : ""}.</p>
    ${later.length ? html`<p class="lead small">Reserved later: ${later.slice(0, LATER).map(([said, names], at) => html`${at ? "; " : ""}<bdi>${said} (${names.slice(0, LATER).join(", ")}${names.length > LATER ? ` and ${names.length - LATER} more` : ""})</bdi>`)}${later.length > LATER ? `; ${later.length - LATER} more: colane reserve` : ""}.</p>` : ""}
    ${shown.left_out ? html`<p class="wa small">▲ Only the youngest ${shown.jobs.length} jobs are drawn, ${shown.left_out_count} older ones are not: what is white may have been held by them. Choose a shorter time${node ? "" : " or a node"}.</p>` : ""}
    <h2>Decisions around ${clock(cursor)} <small>the last ${MOVES} before it, and the next after it</small></h2>
    ${moves.before.length || moves.after.length ? html`<ul class="moves">${moves.before.map(one => html`<${Move} one=${one} />`)}<li class="here"><time>${clock(cursor)}</time><span>— you are here —</span></li>${moves.after.map(one => html`<${Move} one=${one} />`)}</ul>` : html`<p class="lead">Nothing has happened yet.</p>`}
    <footer>As JSON: <a class="lk" href=${`/timeline?last_s=${Math.round(until - from)}&until_s=${until}`}>timeline</a>, <a class="lk" href=${`/timeline/moves?at_s=${cursor}`}>decisions</a>, <a class="lk" href="/samples/cluster">samples</a></footer>`;
}
