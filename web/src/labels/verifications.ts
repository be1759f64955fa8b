import type { Comparison, Subscription, Verification, VerifiedTable } from "../api/client";
import { bytes, count, percent, some } from "./numbers";
import type { Tone } from "./tone";

interface Words {
  tone: Tone;
  word: string;
}

const ENDED: Record<string, Words> = {
  failed: { tone: "bad", word: "failed" },
  cancelled: { tone: "idle", word: "cancelled" },
};

/** How a verification is, or how it ended. */
export function verificationWords({ state, equal, sample = 1 }: Pick<Verification, "state" | "equal" | "sample">): Words {
  if (state === "queued") return { tone: "busy", word: "waiting" };
  if (state === "running") return { tone: "busy", word: "comparing" };
  if (state === "succeeded") {
    if (equal === null) return { tone: "warn", word: "nothing compared" };
    if (!equal) return { tone: "bad", word: "different" };
    return { tone: "good", word: sample < 1 ? "sample equal" : "equal" };
  }
  return ENDED[state] ?? { tone: "unknown", word: `unknown (${state})` };
}

/** "3 of 12 tables compared". */
export function comparedWords({ tables_done, tables_total }: Pick<Verification, "tables_done" | "tables_total">): string {
  return tables_total === null
    ? `${some(tables_done, "table")} compared`
    : `${count(tables_done)} of ${some(tables_total, "table")} compared`;
}

const KINDS: Record<string, string> = {
  missing: "missing on the target",
  extra: "only on the target",
  different: "different values",
};

/** "different values in price, note". */
export const differenceWords = (kind: string, columns: readonly string[] = []): string =>
  (KINDS[kind] ?? kind) + (columns.length > 0 ? ` in ${columns.join(", ")}` : "");

type Counts = NonNullable<VerifiedTable["repaired"]>;

const countsWords = ({ inserted, updated, deleted }: Counts): string =>
  `${some(inserted, "row")} inserted, ${count(updated)} updated, ${count(deleted)} deleted`;

/** What a repair did to a table, or would, and why it left it out; nothing without a repair. */
export function repairWords(table: Pick<VerifiedTable, "equal" | "would_repair" | "repaired" | "repaired_at" | "not_repaired">): string[] {
  const { would_repair, repaired, repaired_at, not_repaired } = table;
  const words: string[] = [];
  if (would_repair != null) words.push(`A repair would write: ${countsWords(would_repair)}.`);
  if (repaired != null) {
    const at = repaired_at == null ? "" : ` at ${repaired_at}`;
    words.push(`Repaired${at}: ${countsWords(repaired)}; the table is ${table.equal ? "equal" : "different"} now.`);
  }
  if (not_repaired != null) words.push(`${repaired == null ? "Not repaired" : "Not compared again"}: ${not_repaired}.`);
  return words;
}

/** A key as one text; NULL is no value. */
export const keyWords = (key: readonly (string | null)[]): string => key.map((part) => part ?? "NULL").join(", ");

/** "1,000 rows on the source, 998 on the target". */
export const rowsWords = ({ source_rows, target_rows }: Pick<VerifiedTable, "source_rows" | "target_rows">): string =>
  `${some(source_rows, "row")} on the source, ${count(target_rows)} on the target`;

/** How a table's last comparison came out, and whether it still counts. */
export function comparisonWords({
  equal,
  before_copy,
  overdue,
  sample = 1,
}: Pick<Comparison, "equal" | "before_copy" | "overdue" | "sample">): Words {
  if (before_copy) return { tone: "warn", word: "not since its copy" };
  if (!equal) return { tone: "bad", word: "different" };
  if (overdue) return { tone: "warn", word: "overdue" };
  return { tone: "good", word: sample < 1 ? "a sample is equal" : "verified" };
}

/** ", a sample of 1 %"; nothing if everything was compared. */
export const sampleWords = ({ sample = 1 }: { sample?: number | undefined }): string =>
  sample < 1 ? `, a sample of ${percent(sample)}` : "";

/** "41 % of the rows", "3 of 12 tables"; null without a schedule. */
export function verifiedShareWords({ verified }: Pick<Subscription, "verified">): { words: string; note: string } | null {
  if (verified == null || verified.rows_ratio === null) return null;
  // Never rounded up to all.
  const share = verified.rows_ratio < 1 ? Math.min(verified.rows_ratio, 0.99) : 1;
  const sampled = verified.sampled_tables ? `; only a sample of ${count(verified.sampled_tables)}` : "";
  return {
    words: `${percent(share)} of the rows`,
    note: `${count(verified.verified_tables)} of ${some(verified.tables, "table")}${sampled}`,
  };
}

/** "by checksum, a sample of 1 %: 2 of 1,025 ranges differed, 92 KiB read", and why by rows or as a whole if not so asked for. */
export function methodWords({
  method,
  sample,
  by_rows_because,
  whole_because,
  ranges,
  ranges_different,
  bytes_from_source,
}: Partial<Pick<VerifiedTable, "sample" | "by_rows_because" | "whole_because" | "ranges" | "ranges_different" | "bytes_from_source">> & {
  method?: string;
}): string {
  const read = bytes_from_source ? `, ${bytes(bytes_from_source)} read` : "";
  const sampled = sampleWords({ sample });
  const whole = whole_because ? `, as a whole because of ${whole_because}` : "";
  if (method === "checksum" && ranges === undefined) return `by checksum${sampled}`;
  if (method === "checksum")
    return `by checksum${sampled}: ${count(ranges_different)} of ${some(ranges ?? 0, "range")} differed${read}${whole}`;
  return `by rows${sampled}${read}${by_rows_because ? `, because of ${by_rows_because}` : ""}${whole}`;
}
