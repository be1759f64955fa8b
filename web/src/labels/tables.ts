import type { Table } from "../api/client";
import { toneOf } from "./health";
import { bytes, count, seconds } from "./numbers";
import type { Tone } from "./tone";

interface StateWords {
  tone: Tone;
  word: string;
  /** One sentence: what it means for readers of the table on the target. */
  means: string;
}

const STATES: Record<string, StateWords> = {
  registered: { tone: "busy", word: "waiting", means: "Its copy has not begun; it has no rows on the target yet." },
  copying: { tone: "busy", word: "copying", means: "Its rows are being copied; they become readable when the copy is complete." },
  catching_up: { tone: "busy", word: "catching up", means: "Changes since the start of its copy are being applied." },
  live: { tone: "good", word: "live", means: "It follows the source." },
  paused: { tone: "idle", word: "paused", means: "It was paused by a user; its existing rows stay readable." },
  reloading: {
    tone: "busy",
    word: "reloading",
    means: "It is copied again; its old rows stay readable until the new ones replace them.",
  },
  parked: {
    tone: "bad",
    word: "parked",
    means: "A fault stopped it; its existing rows stay readable. Other tables are not affected.",
  },
  removed: { tone: "idle", word: "removed", means: "It is no longer replicated; its history stays." },
};

/** States that are kept up or led on only while changes are applied. */
const FOLLOWED = new Set(["registered", "copying", "catching_up", "live", "reloading"]);

/** Every state, also one that this console does not know, in plain words. `held`: the tone of tables that are not followed; null where they are. */
export function tableStateWords(state: string, held: Tone | null = null): StateWords {
  const words = STATES[state];
  if (words === undefined) {
    return {
      tone: "unknown",
      word: `unknown (${state})`,
      means: "This console does not know the state; load the page again after an upgrade.",
    };
  }
  if (held === null || !FOLLOWED.has(state)) return words;
  return { tone: held, word: state === "live" ? "live, not followed" : `${words.word}, stopped`, means: words.means };
}

/** A table by its own state and that of its subscription, as the server judged it. */
export function tableWords({ state, health }: Table): StateWords {
  const tone = toneOf(health.status);
  const held = state === "live" ? health.following !== true : health.status !== "moving";
  const words = tableStateWords(state, held ? tone : null);
  const means = health.reason ?? words.means;
  return words.tone === "unknown" ? { ...words, means: STATES[state] === undefined ? words.means : means } : { ...words, tone, means };
}

const ORDER = ["parked", "reloading", "copying", "catching_up", "registered", "paused", "live", "removed"];

/** States that need attention first, then passing ones, then good ones; unknown ones in front. */
export const statesByNeed = (a: string, b: string): number => ORDER.indexOf(a) - ORDER.indexOf(b);

/** Tables by the need of their state, then by name. */
export const byNeed = (a: Table, b: Table): number => statesByNeed(a.state, b.state) || tableName(a).localeCompare(tableName(b));

export const tableName = (table: Pick<Table, "schema" | "name">): string => `${table.schema}.${table.name}`;

/** A request that is not in effect yet. */
export function asked(table: Table): string | null {
  if (table.desired_state === "paused" && table.state !== "paused" && table.state !== "removed") return "a pause was requested";
  if (table.desired_state === "running" && table.state === "paused") return "a resume was requested";
  return null;
}

export const isCopied = (table: Table): boolean => table.state === "copying" || table.state === "reloading";

/** "41 %, about 12 s left", as far as it is known; null where nothing is. `held`: it does not go on at present. */
export function copyWords(copied: Table["copied"], held = false): string | null {
  const share = copied.percent == null ? null : `${Math.floor(copied.percent)} %`;
  const left = copied.eta_seconds == null || held ? null : `about ${seconds(Math.round(copied.eta_seconds))} left`;
  return [share, left].filter((part) => part !== null).join(", ") || null;
}

/** "1,234 of about 5,000 rows, 1 MiB of 4 MiB, 120 rows/s", as far as it is known. */
export function copiedWords(copied: Table["copied"]): string {
  const { rows, total_rows, bytes: size, total_bytes, rows_per_second } = copied;
  const ofRows = total_rows == null || total_rows === rows ? "" : ` of about ${count(total_rows)}`;
  const ofSize = total_bytes == null || total_bytes === size ? "" : ` of ${bytes(total_bytes)}`;
  const pace = rows_per_second == null ? [] : [`${count(Math.round(rows_per_second))} rows/s`];
  return [`${count(rows)}${ofRows} rows`, `${bytes(size)}${ofSize}`, ...pace].join(", ");
}

export const qualified = (name: { schema: string; name: string }): string => `${name.schema}.${name.name}`;
