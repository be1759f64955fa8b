import type { Connection, ConnectionKind } from "../api/client";

export type Role = "source" | "target";

/** A setting as it is asked for. */
export interface Field {
  name: string;
  label: string;
  hint?: string;
  /** Else it is a line of text. */
  choices?: readonly string[];
  number?: boolean;
  required: boolean;
  initial: string;
  /** Asked for only on request. */
  seldom: boolean;
  /** It is the name of a connection of this kind. */
  connectionKind?: string;
}

/** A setting that is a list; each entry has the same fields. */
export interface ListField {
  name: string;
  label: string;
  hint?: string;
  fields: Field[];
  least: number;
  most: number;
}

/** What is typed for an entry of a list, by the names of its fields. */
export type Entry = Readonly<Record<string, string>>;

interface Property {
  title?: string;
  description?: string;
  type?: string;
  enum?: string[];
  const?: unknown;
  default?: unknown;
  anyOf?: Property[];
  properties?: Record<string, Property>;
  items?: Property;
  minItems?: number;
  maxItems?: number;
  connectionKind?: string;
}

const ASKED = new Set(["string", "integer", "number"]);

/** The settings that a JSON schema describes; those up to the last required one are asked for at once. Lists and nested objects are left out. */
export function fieldsOf(schema: object): Field[] {
  const { properties = {}, required = [] } = schema as { properties?: Record<string, Property>; required?: string[] };
  const names = Object.keys(properties);
  const last = Math.max(-1, ...required.map((name) => names.indexOf(name)));
  return Object.entries(properties).flatMap(([name, property], at) => {
    const { type, const: fixed, enum: choices } = property.anyOf?.find((each) => each.type !== "null") ?? property;
    if (fixed !== undefined || !ASKED.has(type ?? "")) return [];
    return {
      name,
      label: property.title ?? name,
      ...(property.description === undefined ? {} : { hint: property.description }),
      ...(choices === undefined ? {} : { choices }),
      number: type !== "string",
      required: required.includes(name),
      initial: property.default == null ? "" : String(property.default),
      seldom: at > last,
      ...(property.connectionKind === undefined ? {} : { connectionKind: property.connectionKind }),
    };
  });
}

/** The settings that are lists of objects. */
export function listsOf(schema: object): ListField[] {
  const { properties = {} } = schema as { properties?: Record<string, Property> };
  return Object.entries(properties).flatMap(([name, { type, title, description, items, minItems, maxItems }]) => {
    if (type !== "array" || items?.properties === undefined) return [];
    return {
      name,
      label: title ?? name,
      ...(description === undefined ? {} : { hint: description }),
      fields: fieldsOf(items),
      least: minItems ?? 0,
      most: maxItems ?? Number.MAX_SAFE_INTEGER,
    };
  });
}

/** What is typed into fields, by their names: what is left empty is left out, and has its default. */
export function valuesIn(fields: readonly Field[], typed: Record<string, string>): Record<string, string | number> {
  const values: Record<string, string | number> = {};
  for (const { name, number, initial } of fields) {
    const value = (typed[name] ?? initial).trim();
    if (value !== "") values[name] = number === true ? Number(value) : value;
  }
  return values;
}

const findKind = (kinds: readonly ConnectionKind[], kind: string): ConnectionKind | undefined => kinds.find((each) => each.kind === kind);

/** The likeliest first: what the engine keeps itself is a target, as a rule. */
export const rolesIn = (kind: ConnectionKind): Role[] =>
  (kind.embedded ? (["target", "source"] as const) : (["source", "target"] as const)).filter((role) => kind[role]);

/** Kinds that can be used so, the likeliest first. */
export const kindsFor = (kinds: readonly ConnectionKind[], role: Role): ConnectionKind[] =>
  kinds.filter((kind) => kind[role]).sort((a, b) => place(a, role) - place(b, role));

/** The server lists the likeliest first, but for what the engine keeps itself. */
const place = (kind: ConnectionKind, role: Role): number => (!kind.embedded ? 1 : role === "target" ? 0 : 2);

/** What a connection can be used as; nothing where the server does not know its kind. */
export function rolesOf(kinds: readonly ConnectionKind[], { kind }: Connection): Role[] {
  const found = findKind(kinds, kind);
  return found === undefined ? [] : rolesIn(found);
}

/** Whether the engine opens its database itself, and makes it where it is missing. */
export const isEmbedded = (kinds: readonly ConnectionKind[], { kind }: Connection): boolean => findKind(kinds, kind)?.embedded === true;

/** How its changes can be read as a source, the usual way first. */
export const capturesOf = (kinds: readonly ConnectionKind[], { kind }: Connection): ConnectionKind["captures"] =>
  findKind(kinds, kind)?.captures ?? [];

/** Whether triggers on it can record its changes. */
export const isByTriggers = (kinds: readonly ConnectionKind[], connection: Connection): boolean =>
  capturesOf(kinds, connection).some(({ by_triggers }) => by_triggers);

export const kindLabel = (kinds: readonly ConnectionKind[], kind: string): string => findKind(kinds, kind)?.title ?? kind;

/** The nodes of a connection that consists of others, in their order. */
export function nodesOf({ settings: { nodes } }: Pick<Connection, "settings">): { name: string; connection: string }[] {
  return Array.isArray(nodes) ? nodes.map(({ name = "", connection = "" }) => ({ name, connection })) : [];
}

/** Those of which it is a node. */
export const wholesOf = (connections: readonly Connection[], name: string): Connection[] =>
  connections.filter((each) => nodesOf(each).some(({ connection }) => connection === name));

/** Where a connection leads, from the settings that say so. */
export function placeOf({ settings }: Pick<Connection, "settings">): string {
  const nodes = nodesOf({ settings });
  if (nodes.length > 0) return nodes.map(({ name, connection }) => `${name}: ${connection}`).join(", ");
  if (settings.path !== undefined) return String(settings.path);
  const { host, port, database, user } = settings;
  if (host === undefined) return Object.values(settings).join(" ");
  return `${user === undefined ? "" : `${user}@`}${host}${port === undefined ? "" : `:${port}`}${database === undefined ? "" : `/${database}`}`;
}

/** What names of connections and subscriptions may be made of, for an input's `pattern`. */
export const NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9_.\\-]{0,62}";
export const NAME_HINT = "1 to 63 letters, digits, _ . and -, the first a letter or digit.";
