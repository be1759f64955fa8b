import type { Verification, VerifiedTable } from "../api/client";
import { count, some } from "./numbers";
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
export function verificationWords({ state, equal }: Pick<Verification, "state" | "equal">): Words {
  if (state === "queued") return { tone: "busy", word: "waiting" };
  if (state === "running") return { tone: "busy", word: "comparing" };
  if (state === "succeeded") {
    if (equal === null) return { tone: "warn", word: "nothing compared" };
    return equal ? { tone: "good", word: "equal" } : { tone: "bad", word: "different" };
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

export const differenceWords = (kind: string): string => KINDS[kind] ?? kind;

/** A key as one text; NULL is no value. */
export const keyWords = (key: readonly (string | null)[]): string => key.map((part) => part ?? "NULL").join(", ");

/** "1,000 rows on the source, 998 on the target". */
export const rowsWords = ({ source_rows, target_rows }: Pick<VerifiedTable, "source_rows" | "target_rows">): string =>
  `${some(source_rows, "row")} on the source, ${count(target_rows)} on the target`;
