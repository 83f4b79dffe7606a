// Samples over time as lines: all on one time axis, a lost sample is a gap.
import { html, moment, short } from "/page/common.js";

const WIDE = 600, HIGH = 60;

const xy = (value, at, { length }, most) => `${(at / (length - 1) * WIDE).toFixed(1)} ${(HIGH - value / most * HIGH).toFixed(1)}`;
const has = value => value !== null && value !== undefined;

function line(values, most) {
  return values.map((value, at) => has(value) ? `${has(values[at - 1]) ? "L" : "M"}${xy(value, at, values, most)}` : "").join("");
}

function dots(values, most) {  // points between two gaps, which a line does not show
  return values.map((value, at) => has(value) && !has(values[at - 1]) && !has(values[at + 1]) ? `M${xy(value, at, values, most)}h0.01` : "").join("");
}

function Chart({ label, unit, word, values, marks, now }) {
  const known = values.filter(value => value !== null), most = Math.max(...known) * 1.1 || 1;
  return html`<figure><figcaption><b>${label}</b> ${word || unit}<em>${now === null ? "" : `${short(now)} ${unit}`}</em></figcaption>
    <div class="plot"><span>${short(most)}</span><span>0</span>
    <svg viewBox=${`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" role="img" aria-label=${`${label}, ${unit}: from ${
      short(Math.min(...known))} to ${short(Math.max(...known))}`}>
      ${marks.map(({ ratio, number }) => html`<line key=${number} class="mark" x1=${ratio * WIDE} x2=${ratio * WIDE} y1="0" y2=${HIGH} />`)}
      <path d=${line(values, most)} /><path class="dot" d=${dots(values, most)} /></svg></div></figure>`;
}

const SERIES = [["steps_per_s", "Steps", "per s", 1], ["busy_ratio", "GPU busy", "%", 0.01, "% of the time"],
  ["device_bytes", "GPU memory", "GB", 1e9], ["cpu_cores", "Cores", "busy", 1],
  ["host_bytes", "Host memory", "GB", 1e9], ["share_ratio", "Share of its lanes", "%", 0.01, "% of the time it wants them"]];

function unitOf(size, unit, values) {  // what is small is told in megabytes
  return size === 1e9 && Math.max(...values.filter(has)) < 5e8 ? [1e6, "MB"] : [size, unit];
}

export function places(gpus) {  // n1/0, n1/1 -> n1/0,1
  const by = Map.groupBy ? Map.groupBy(gpus, gpu => gpu.slice(0, gpu.lastIndexOf("/"))) : new Map([["", gpus]]);
  return [...by].map(([node, all]) => node ? `${node}/${all.map(gpu => gpu.slice(node.length + 1)).join(",")}` : all.join(", ")).join("; ");
}

function Places({ spans, from, until }) {  // where it was, on the same axis
  const ratio = at => Math.min(1, Math.max(0, (at - from) / (until - from))) * 100, seen = spans.filter(one => (one.until_s ?? until) > from && one.since_s < until);
  return seen.length ? html`<figure class="places"><figcaption><b>Place</b> devices that it held; blank: none</figcaption><div>${seen.map(one => {
    const left = ratio(one.since_s), said = places(one.gpus);
    return html`<span key=${one.since_s} style=${{ left: `${left}%`, width: `${Math.max(0.4, ratio(one.until_s ?? until) - left)}%` }} title=${`${said}: ${moment(one.since_s)} to ${one.until_s === null ? "now" : moment(one.until_s)}`}>${said}</span>`;
  })}</div></figure>` : "";
}

export function Charts({ samples, story, spans = [] }) {
  const points = samples.steps_per_s.length, until_s = samples.start_s + (points - 1) * samples.step_s;
  const marks = story.map((one, at) => ({ number: at + 1, ratio: (one.at_s - samples.start_s) / (until_s - samples.start_s) }))
    .filter(({ ratio }) => ratio >= 0 && ratio <= 1);
  const seen = SERIES.filter(([key]) => samples[key].some(value => value !== null));
  if (points < 2 || !seen.length) return html`<p class="lead">No samples of it yet: they come every 10 s while it runs.</p>`;
  return html`<div class="charts"><div class="numbers">${marks.map(({ ratio, number }) =>
      html`<i key=${number} style=${{ left: `${ratio * 100}%` }}>${number}</i>`)}</div>
    ${seen.map(([key, label, whole, most, word]) => {
      const [size, unit] = unitOf(most, whole, samples[key]);
      return html`<${Chart} key=${key} label=${label} unit=${unit} word=${word} marks=${marks}
      now=${has(samples.now?.[key]) ? samples.now[key] / size : null} values=${samples[key].map(value => has(value) ? value / size : null)} />`;
    })}
    <${Places} spans=${spans} from=${samples.start_s} until=${until_s} />
    <div class="axis"><span>${moment(samples.start_s)}</span><span>${moment(until_s)}</span></div></div>`;
}

export function Spark({ values, most, label, wide = 64 }) {  // from the first to the last sample, the last one dotted
  const high = 14, known = values.filter(has);
  if (!known.length) return html`<svg class="sp" width=${wide} height=${high + 2} role="img" aria-label=${`${label}: no samples`}></svg>`;
  const top = most ?? (Math.max(...known) * 1.1 || 1), at = i => 1 + i / Math.max(1, values.length - 1) * (wide - 5), y = value => 1 + (1 - Math.min(1, value / top)) * high;
  const last = values.findLastIndex(has), step = Math.max(1, Math.floor(values.length / wide));
  let path = "", on = false;
  values.forEach((value, i) => {
    if (!has(value)) on = false;
    else if (i % step === 0 || !on || i === last) { path += `${on ? "L" : "M"}${at(i).toFixed(1)} ${y(value).toFixed(1)}`; on = true; }
  });
  return html`<svg class="sp" width=${wide} height=${high + 2} role="img" aria-label=${`${label}: from ${short(Math.min(...known))} to ${short(Math.max(...known))}`}><path d=${path} />
    <circle cx=${at(last).toFixed(1)} cy=${y(values[last]).toFixed(1)} r="2" /></svg>`;
}
