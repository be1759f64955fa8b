import type { Mask, SourceTable, Table, TableBody, TablePatch } from "../../api/client";
import { matches } from "../wizard/draft";

/** How a column's values are replicated. A name of a mask has its type after a point. */
export type ValueChoice = "as it is" | "text" | "null" | "constant" | "hash.text" | "hash.bytea";

/** The options of a table while they are entered. */
export interface OptionsDraft {
  key: readonly string[];
  where: string;
  insertOnly: boolean;
  intoExisting: boolean;
  /** Names and patterns, one a line. */
  include: string;
  exclude: string;
  /** Columns that are held as text. */
  texts: readonly string[];
  mask: Readonly<Record<string, Mask>>;
  /** Names on the target; an empty one is as on the source. */
  rename: Readonly<Record<string, string>>;
  refusedRows: "park" | "set_aside";
  deletes: "delete" | "mark";
  history: boolean;
  priority: string;
}

export const NO_OPTIONS: OptionsDraft = {
  key: [],
  where: "",
  insertOnly: false,
  intoExisting: false,
  include: "",
  exclude: "",
  texts: [],
  mask: {},
  rename: {},
  refusedRows: "park",
  deletes: "delete",
  history: false,
  priority: "0",
};

export const draftOf = (table: Table): OptionsDraft => ({
  key: table.key,
  where: table.where ?? "",
  insertOnly: table.insert_only,
  intoExisting: table.into_existing,
  include: (table.include_columns ?? []).join("\n"),
  exclude: (table.exclude_columns ?? []).join("\n"),
  texts: Object.keys(table.columns),
  mask: table.mask ?? {},
  rename: table.rename ?? {},
  refusedRows: table.refused_rows ?? "park",
  deletes: table.deletes ?? "delete",
  history: table.history ?? false,
  priority: String(table.priority ?? 0),
});

/** The entries of a text with one a line. Blanks at the ends of a name are kept: names may have them. */
export const linesOf = (text: string): string[] => [...new Set(text.split("\n").filter((line) => line.trim() !== ""))];

/** All options, as a PATCH takes them; null for those at their default. */
function optionsOf(draft: OptionsDraft) {
  return {
    key: draft.key.length > 0 ? [...draft.key] : null,
    where: draft.where.trim() === "" ? null : draft.where.trim(),
    insert_only: draft.insertOnly,
    into_existing: draft.intoExisting,
    include_columns: linesOf(draft.include),
    exclude_columns: linesOf(draft.exclude),
    mask: draft.mask,
    rename: Object.fromEntries(Object.entries(draft.rename).filter(([, name]) => name !== "")),
    refused_rows: draft.refusedRows,
    deletes: draft.deletes,
    history: draft.history,
    priority: Number(draft.priority),
  };
}

/** Whether two values are the same as JSON, whatever the order of members. */
function same(a: unknown, b: unknown): boolean {
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return a === b;
  if (Array.isArray(a) || Array.isArray(b)) return JSON.stringify(a) === JSON.stringify(b);
  const [one, other] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => name in other && same(one[name], other[name]));
}

/** What changes the options as they were opened into those that were entered; empty if nothing was changed. */
export function patchOf(opened: OptionsDraft, entered: OptionsDraft): TablePatch {
  const before: Record<string, unknown> = optionsOf(opened);
  const after: Record<string, unknown> = optionsOf(entered);
  const changed = Object.entries(after).filter(([name, value]) => !same(before[name], value));
  const added = entered.texts.filter((name) => !opened.texts.includes(name)).map((name) => [name, { map_as: "text" }] as const);
  const gone = opened.texts.filter((name) => !entered.texts.includes(name)).map((name) => [name, null] as const);
  const columns = Object.fromEntries([...added, ...gone]);
  return { ...Object.fromEntries(changed), ...(Object.keys(columns).length > 0 ? { columns } : {}) } as TablePatch;
}

type Named = Pick<SourceTable, "schema" | "name">;

/** The table with these options, as it is declared and checked; what is at its default is left out. */
export function bodyOf(table: Named, draft: OptionsDraft, target?: { schema: string; name: string }): TableBody {
  const { columns, ...options } = patchOf(NO_OPTIONS, draft);
  const elsewhere = Object.entries(target ?? {}).filter(([part, name]) => name !== "" && name !== table[part as keyof Named]);
  return {
    schema: table.schema,
    name: table.name,
    ...(table.name.includes("*") ? { exact: true } : {}),
    ...(elsewhere.length > 0 ? { target: Object.fromEntries(elsewhere) } : {}),
    ...options,
    ...(columns == null ? {} : { columns }),
  } as TableBody;
}

export function valueChoice(draft: OptionsDraft, column: string): ValueChoice {
  const mask = draft.mask[column];
  if (mask === undefined) return draft.texts.includes(column) ? "text" : "as it is";
  return mask.method === "hash" ? (mask.type === "bytea" ? "hash.bytea" : "hash.text") : mask.method;
}

/** The changes that have a column's values replicated in another way. `constant`: in place of a value. */
export function withValue(draft: OptionsDraft, column: string, chosen: ValueChoice, constant = ""): Partial<OptionsDraft> {
  const { [column]: _, ...others } = draft.mask;
  const texts = draft.texts.filter((name) => name !== column);
  if (chosen === "as it is") return { texts, mask: others };
  if (chosen === "text") return { texts: [...texts, column], mask: others };
  return { texts, mask: { ...others, [column]: maskOf(chosen, constant) } };
}

function maskOf(chosen: Exclude<ValueChoice, "as it is" | "text">, constant: string): Mask {
  if (chosen === "constant") return { method: "constant", type: "text", value: constant };
  if (chosen === "null") return { method: "null", type: "text", value: null };
  return { method: "hash", type: chosen === "hash.bytea" ? "bytea" : "text", value: null };
}

/** Whether the column is replicated. */
export function takesColumn({ include, exclude }: Pick<OptionsDraft, "include" | "exclude">, column: string): boolean {
  const included = linesOf(include);
  const taken = included.length === 0 || included.some((entry) => matches(entry, column));
  return taken && !linesOf(exclude).some((entry) => matches(entry, column));
}

/** The changes that leave a column out by its name, or take it in again; a pattern that leaves it out stays. */
export function withColumn(draft: OptionsDraft, column: string, taken: boolean): Partial<OptionsDraft> {
  const excluded = linesOf(draft.exclude).filter((entry) => entry !== column);
  if (!taken) return { exclude: [...excluded, column].join("\n") };
  const included = linesOf(draft.include);
  const named = included.length === 0 || included.some((entry) => matches(entry, column)) ? included : [...included, column];
  return { exclude: excluded.join("\n"), include: named.join("\n") };
}

/** Columns that the options name and the source does not have, or that are not known. */
export function unknownColumns(draft: OptionsDraft, known: readonly string[]): string[] {
  const lists = [...linesOf(draft.include), ...linesOf(draft.exclude)].filter((entry) => !entry.includes("*"));
  const named = new Set([...draft.key, ...draft.texts, ...Object.keys(draft.mask), ...Object.keys(draft.rename), ...lists]);
  return [...named].filter((name) => !known.includes(name)).sort();
}

/** What is wrong with a priority as it was typed. */
export const wrongPriority = (typed: string): string | null =>
  /^-?[0-9]+$/.test(typed) && Math.abs(Number(typed)) <= 1000 ? null : "A whole number from -1000 to 1000.";
