import type { ConnectionKind, SourceTable } from "../../api/client";
import type { Detection, StampBelow } from "../../labels/detections";

type CaptureKind = ConnectionKind["captures"][number];

/** How the changes of one table are found by queries, while it is entered. What is empty is left out, and has its default. */
export interface DetectionDraft {
  /** Columns that identify a row, in this order. */
  key: readonly string[];
  method: string;
  stampColumn: string;
  flagColumn: string;
  sweepEvery: string;
  /** Types of columns, by their names. */
  types: Readonly<Record<string, string>>;
  /** As declared by REST or YAML: the console keeps them, and has no fields for them. */
  below: Readonly<Record<string, StampBelow>>;
}

export const NO_DETECTION: DetectionDraft = { key: [], method: "", stampColumn: "", flagColumn: "", sweepEvery: "", types: {}, below: {} };

/** By the tables' keys. */
export type DetectionDrafts = Readonly<Record<string, DetectionDraft>>;

const FLAGGED = "timestamp_delete_flag";

/** Whether a method finds changed rows by a stamp; then it has one of its own for the rest of the entry. */
export const isStamped = (method: string): boolean => method === "timestamp" || method === FLAGGED;
export const isFlagged = (method: string): boolean => method === FLAGGED;

/** The entry as it is declared; undefined if nothing is entered. What belongs to another method than the chosen one is left out. */
export function detectionOf(draft: DetectionDraft): Detection | undefined {
  const types = Object.entries(draft.types).flatMap(([name, type]) => (type.trim() === "" ? [] : [[name, type.trim()]]));
  const isBelow = draft.method === "timestamp" && draft.stampColumn === "" && Object.keys(draft.below).length > 0;
  const detection: Detection = {
    ...(draft.key.length > 0 ? { key: [...draft.key] } : {}),
    ...(draft.method === "" ? {} : { method: draft.method }),
    ...(isStamped(draft.method) && draft.stampColumn !== "" ? { stamp_column: draft.stampColumn } : {}),
    ...(isFlagged(draft.method) && draft.flagColumn !== "" ? { flag_column: draft.flagColumn } : {}),
    ...(isStamped(draft.method) && draft.sweepEvery.trim() !== "" ? { sweep_every: Number(draft.sweepEvery) } : {}),
    ...(isBelow ? { stamps_below: draft.below } : {}),
    ...(types.length > 0 ? { columns: Object.fromEntries(types) } : {}),
  };
  return Object.keys(detection).length > 0 ? detection : undefined;
}

/** An entry as it was declared, to be changed. */
export const draftOf = ({ key, method, stamp_column, flag_column, sweep_every, columns, stamps_below }: Detection): DetectionDraft => ({
  key: key ?? [],
  method: method ?? "",
  stampColumn: stamp_column ?? "",
  flagColumn: flag_column ?? "",
  sweepEvery: (stamp_column == null && stamps_below === undefined) || sweep_every === undefined ? "" : String(sweep_every),
  types: columns ?? {},
  below: stamps_below ?? {},
});

interface Property {
  description?: string;
  enum?: string[];
  anyOf?: Property[];
}

interface Schema {
  $defs?: { TableDetection?: { properties?: Record<string, Property> } };
  properties?: Record<string, Property>;
}

/** Which members an entry of `capture.tables` can have, with what the server says of each. */
export interface DetectionKind {
  key: boolean;
  types: boolean;
  /** Methods to choose from; none if there is only one. */
  methods: string[];
  /** By the names that the API has. */
  hints: Record<string, string>;
}

/** What can be entered for single tables with this capture; null if it reads all of them alike. */
export function detectionKind(capture: CaptureKind | undefined): DetectionKind | null {
  const schema = (capture?.settings ?? {}) as Schema;
  const members = schema.$defs?.TableDetection?.properties;
  if (capture === undefined || members === undefined || schema.properties?.tables === undefined) return null;
  const general = schema.properties.method?.enum ?? [];
  const single = members.method?.anyOf?.find((each) => each.enum !== undefined)?.enum ?? [];
  const several = general.length > 1 || capture.table_options.includes("flag_column");
  const able = (method: string): boolean =>
    general.includes(method) || (isFlagged(method) ? capture.table_options.includes("flag_column") : isStamped(method));
  return {
    key: capture.table_options.includes("key"),
    types: capture.table_options.includes("columns"),
    methods: several ? single.filter(able) : [],
    hints: Object.fromEntries(Object.entries(members).map(([name, { description }]) => [name, description ?? ""])),
  };
}

/** It has no key of its own, so that queries need a declared one. */
export const lacksKey = (table: Pick<SourceTable, "key" | "problems">): boolean =>
  table.key.length === 0 && table.problems.some(({ code }) => code === "table_no_identity");

/** It is a view: patterns do not take it. */
export const isView = ({ problems }: Pick<SourceTable, "problems">): boolean => problems.some(({ code }) => code === "view");
