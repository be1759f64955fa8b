import type { Subscription } from "../api/client";

/** How the changes of one table are found, as an entry of `capture.tables` says. */
export interface Detection {
  key?: string[] | null;
  method?: string | null;
  stamp_column?: string | null;
  flag_column?: string | null;
  sweep_every?: number;
  columns?: Record<string, string>;
  stamps_below?: Record<string, StampBelow>;
}

/** The stamp of a table below a view, and which of the view's columns have values of which of its columns. */
export interface StampBelow {
  stamp_column: string;
  columns: Record<string, string>;
}

interface Detecting {
  tables?: Record<string, Detection>;
}

/** What a subscription's capture says of single tables, by `schema.name`. */
export const detectionsIn = (capture: Subscription["capture"] | undefined): Readonly<Record<string, Detection>> =>
  (capture as Detecting | undefined)?.tables ?? {};

/** What a subscription's capture says of a table of its own; undefined if it says nothing of it. */
export const detectionOf = (
  capture: Subscription["capture"] | undefined,
  { schema, name }: { schema: string; name: string },
): Detection | undefined => detectionsIn(capture)[`${schema}.${name}`];

/** How its changes are found, as facts: a name and what holds. The key is not among them. */
export function detectionFacts(detection: Detection): [string, string][] {
  const { method, stamp_column, flag_column, sweep_every, columns, stamps_below } = detection;
  const below = Object.entries(stamps_below ?? {}).map(([table, stamp]) => `${table}.${stamp.stamp_column}`);
  const types = Object.entries(columns ?? {}).map(([column, type]) => `${column}: ${type}`);
  const facts: [string, string | null | undefined][] = [
    ["How its changes are found", method],
    ["Stamp column", stamp_column],
    ["Stamps below the view", below.join(", ")],
    ["Column of the delete flag", flag_column],
    ["All rows once in … cycles", (stamp_column == null && below.length === 0) || sweep_every === undefined ? null : String(sweep_every)],
    ["Types of its columns", types.join(", ")],
  ];
  return facts.filter((fact): fact is [string, string] => fact[1] != null && fact[1] !== "");
}
