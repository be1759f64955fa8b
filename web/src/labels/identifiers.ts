/** Reserved in PostgreSQL or DuckDB: as names they have to be quoted. */
const RESERVED = new Set(
  (
    "all analyse analyze and anti any array as asc asof asymmetric authorization between binary both by case cast check collate collation " +
    "column concurrently constraint create cross current_catalog current_date current_role current_schema current_time current_timestamp " +
    "current_user default deferrable desc describe distinct do else end except exists extract false fetch for foreign freeze from full glob " +
    "grant group having ilike in initially inner intersect into is isnull join lambda lateral leading left like limit localtime " +
    "localtimestamp map natural not notnull null offset on only or order outer overlaps pivot pivot_longer pivot_wider placing position " +
    "positional primary qualify references returning right row select semi session_user show similar some struct summarize symmetric table " +
    "tablesample then to trailing true try_cast union unique unpivot user using values variadic verbose when where window with"
  ).split(" "),
);

/** A name as a statement has it: quoted where it has to be. */
export const identifier = (name: string): string =>
  /^[a-z_][a-z0-9_]*$/.test(name) && !RESERVED.has(name) ? name : `"${name.replaceAll('"', '""')}"`;

export const relation = ({ schema, name }: { schema: string; name: string }): string => `${identifier(schema)}.${identifier(name)}`;
