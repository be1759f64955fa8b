import type { ConnectionKind, SourceTable, SubscriptionPut, TableBody } from "../../api/client";
import { type Field, fieldsOf, valuesIn } from "../../labels/kinds";
import { type DetectionDraft, detectionOf, isView } from "./detection";

/** Tables of a schema by a pattern of names, also those that appear later. */
export interface Pattern {
  schema: string;
  /** With `*` for any characters. */
  name: string;
  exclude: string[];
  /** Of tables without a key only inserts are followed. */
  insertOnly: boolean;
}

export interface Options {
  start: boolean;
  policy: "apply" | "ask" | "ignore";
  refusedRows: "park" | "set_aside";
  origin: "any" | "none";
  /** Empty: as on the source. */
  targetSchema: string;
  /** Empty: no limit. */
  rowsPerSecond: string;
  /** Empty: the server's default. */
  slotBudgetGib: string;
  /** Kind of capture; empty: the usual one of the source's kind. */
  capture: string;
  /** What is typed for the settings of the capture that have no field of their own. */
  captureSettings: Record<string, string>;
}

/** A subscription that is being put together. Tables are kept by their keys. */
export interface Draft {
  name: string;
  source: string;
  target: string;
  tables: ReadonlySet<string>;
  /** Those of them of which only inserts are followed. */
  insertOnly: ReadonlySet<string>;
  patterns: readonly Pattern[];
  /** How changes of single tables are found, if the capture knows that, by the tables' keys. */
  detections: Readonly<Record<string, DetectionDraft>>;
  options: Options;
}

/** What each step of the wizard is given. */
export interface StepProps {
  draft: Draft;
  onChange: (changes: Partial<Draft>) => void;
  /** Leads to the next step. */
  onNext: () => void;
}

export const DEFAULTS: Options = {
  start: true,
  policy: "apply",
  refusedRows: "park",
  origin: "any",
  targetSchema: "",
  rowsPerSecond: "",
  slotBudgetGib: "",
  capture: "",
  captureSettings: {},
};

type CaptureKind = ConnectionKind["captures"][number];

/** The capture that is chosen, else the usual one; none where the kinds are not read yet. */
export const captureOf = (captures: readonly CaptureKind[], { capture }: Options): CaptureKind | undefined =>
  captures.find(({ kind }) => kind === capture) ?? captures[0];

/** Whether a capture has this setting. */
export const hasSetting = (capture: CaptureKind | undefined, name: string): boolean =>
  capture === undefined || name in ((capture.settings as { properties?: object }).properties ?? {});

/** The settings of a capture that are asked for as its schema says; the log's budget has a field of its own. */
export const captureFields = (capture: CaptureKind | undefined): Field[] =>
  fieldsOf(capture?.settings ?? {}).filter(({ name }) => name !== "slot_budget_bytes");

type Named = Pick<SourceTable, "schema" | "name">;

export const keyOf = ({ schema, name }: Named): string => JSON.stringify([schema, name]);
export const nameOf = ({ schema, name }: Named): string => `${schema}.${name}`;

const NO_IDENTITY = "table_no_identity";

/** Updates and deletes of it cannot be followed, inserts can. */
export const lacksIdentity = (table: SourceTable): boolean =>
  table.problems.some(({ severity, code }) => severity === "error" && code === NO_IDENTITY);

/** It cannot be replicated as it is, whatever is consented to. */
export const isBlocked = (table: SourceTable): boolean =>
  table.problems.some(({ severity, code }) => severity === "error" && code !== NO_IDENTITY);

/** `*` in a pattern stands for any characters, as in the server. */
export const matches = (pattern: string, name: string): boolean => {
  const parts = pattern.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join("[^]*")}$`).test(name);
};

/** Views are replicated by name only. */
export const takes = (pattern: Pattern, table: SourceTable): boolean =>
  table.schema === pattern.schema &&
  matches(pattern.name, table.name) &&
  !pattern.exclude.some((each) => matches(each, table.name)) &&
  !isView(table);

export const patternOf = (draft: Draft, table: SourceTable): Pattern | undefined => draft.patterns.find((pattern) => takes(pattern, table));

/** The tables that would be replicated now: by name, or by a pattern. */
export const chosenOf = (draft: Draft, tables: SourceTable[]): SourceTable[] =>
  tables.filter((table) => draft.tables.has(keyOf(table)) || patternOf(draft, table) !== undefined);

function declared(draft: Draft, table: Named, insertOnly: boolean): TableBody {
  const { targetSchema, refusedRows } = draft.options;
  return {
    schema: table.schema,
    name: table.name,
    ...(insertOnly ? { insert_only: true } : {}),
    ...(targetSchema === "" ? {} : { target: { schema: targetSchema } }),
    ...(refusedRows === "park" ? {} : { refused_rows: refusedRows }),
  };
}

const byName = (draft: Draft, table: SourceTable): TableBody => ({
  ...declared(draft, table, draft.insertOnly.has(keyOf(table))),
  ...(table.name.includes("*") ? { exact: true } : {}),
});

/** Each table that would be replicated now, as the checks take it: they know no patterns. */
export function tablesToCheck(draft: Draft, tables: SourceTable[]): TableBody[] {
  return chosenOf(draft, tables).map((table) => {
    const pattern = patternOf(draft, table);
    if (draft.tables.has(keyOf(table)) || pattern === undefined) return byName(draft, table);
    return { ...declared(draft, table, pattern.insertOnly && lacksIdentity(table)), ...(table.name.includes("*") ? { exact: true } : {}) };
  });
}

/** The entries of `capture.tables`, of the tables that are chosen. */
function detectionsOf(draft: Draft, tables: SourceTable[]) {
  const entries = chosenOf(draft, tables).flatMap((table) => {
    const entered = draft.detections[keyOf(table)];
    const detection = entered === undefined ? undefined : detectionOf(entered);
    return detection === undefined ? [] : [[nameOf(table), detection] as const];
  });
  return Object.fromEntries(entries);
}

const GIB = 1024 ** 3;

/** The subscription as it is declared. What is at its default is left out, and follows the default. `asked`: see `captureFields`. */
export function bodyOf(draft: Draft, tables: SourceTable[], asked: readonly Field[] = []): SubscriptionPut {
  const { start, policy, origin, rowsPerSecond, slotBudgetGib, captureSettings } = draft.options;
  const named = tables.filter((table) => draft.tables.has(keyOf(table))).map((table) => byName(draft, table));
  const patterns = draft.patterns.map((pattern) => ({
    ...declared(draft, pattern, pattern.insertOnly),
    ...(pattern.exclude.length > 0 ? { exclude: pattern.exclude } : {}),
  }));
  const detections = detectionsOf(draft, tables);
  const capture = {
    ...(draft.options.capture === "" ? {} : { kind: draft.options.capture }),
    ...valuesIn(
      asked.filter(({ name }) => name in captureSettings),
      captureSettings,
    ),
    ...(Object.keys(detections).length > 0 ? { tables: detections } : {}),
    ...(origin === "any" ? {} : { origin }),
    ...(slotBudgetGib === "" ? {} : { slot_budget_bytes: Math.round(Number(slotBudgetGib) * GIB) }),
  };
  return {
    source: draft.source,
    target: draft.target,
    tables: [...named, ...patterns],
    desired_state: start ? "running" : "stopped",
    ...(Object.keys(capture).length > 0 ? { capture } : {}),
    ...(policy === "apply" ? {} : { schema_changes: { policy } }),
    ...(rowsPerSecond === "" ? {} : { copies: { max_rows_per_second: Number(rowsPerSecond) } }),
  } as SubscriptionPut;
}
