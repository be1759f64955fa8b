import type { Mask, TablePlan } from "../api/client";

type Change = TablePlan["fields"][number];

/** The options of a table as people call them, by their names in the API. */
const NAMES: Record<string, string> = {
  key: "Key",
  operations: "Followed operations",
  where: "Row filter",
  insert_only: "Only inserts",
  columns: "Columns held as text",
  into_existing: "Existing table on the target",
  include_columns: "Only these columns",
  exclude_columns: "Columns left out",
  mask: "Masks",
  rename: "Names on the target",
  priority: "Priority of its copies",
  refused_rows: "Rows that the target refuses",
  deletes: "Rows that the source deletes",
  history: "Versions of its rows",
  desired_state: "Requested state",
};

export const optionName = (option: string): string => NAMES[option] ?? option;

const NONE = "none";

/** The value of an option, as one line. */
export function optionValue(option: string, value: unknown): string {
  if (option === "refused_rows") return value === "set_aside" ? "are quarantined" : "park the table";
  if (option === "deletes") return value === "mark" ? "stay, marked" : "are deleted";
  if (option === "history") return value === true ? "are kept" : "are not kept";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.join(", ") || (option === "key" ? "the source's own" : NONE);
  if (typeof value !== "object" || value === null) return value == null || value === "" ? NONE : String(value);
  const entries = Object.entries(value as Record<string, unknown>);
  if (entries.length === 0) return NONE;
  if (option === "columns") return entries.map(([name]) => name).join(", ");
  if (option === "rename") return entries.map(([from, to]) => `${from} → ${String(to)}`).join(", ");
  if (option === "mask") return maskWords(value as Record<string, Mask>);
  return JSON.stringify(value);
}

/** "ssn: hash, note: NULL". */
export const maskWords = (masks: Record<string, Mask>): string =>
  Object.entries(masks)
    .map(([column, mask]) => `${column}: ${methodWords(mask)}`)
    .join(", ");

function methodWords({ method, type, value }: Mask): string {
  if (method === "null") return "NULL";
  if (method === "constant") return `“${value ?? ""}”`;
  return type === "bytea" ? "hash, as bytes" : "hash";
}

const SELECTION = new Set(["include_columns", "exclude_columns"]);

/** What follows from a changed option: the end of a sentence that names the option. */
export function effectWords({ field, effect }: Pick<Change, "field" | "effect">): string {
  switch (effect) {
    case "at_once":
      return "takes effect at once, without a copy";
    case "in_place":
      return SELECTION.has(field)
        ? "no reload is needed; columns that are now left out are dropped from the table on the target"
        : "no reload is needed; the table on the target is changed in place";
    case "new_copy":
      return "the table is copied again automatically, which reads all its rows from the source; its old rows stay readable until then";
    case "parks":
      return "the table parks, because the subscription does not follow such changes automatically; approve the change there, or reload the table";
    case "next_reload":
      return "takes effect with the next reload of the table";
    default:
      return `unknown effect (${String(effect)})`;
  }
}

/** Whether nothing happens before the table is reloaded by request. */
export const waitsForReload = (changes: readonly Pick<Change, "effect">[]): boolean =>
  changes.some(({ effect }) => effect === "next_reload");
