import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import type { Connection, SourceTable } from "../../api/client";
import { Radios } from "../../components/field";
import { Findings } from "../../components/findings";
import { QueryBoundary } from "../../components/queryBoundary";
import { SourceTableList } from "../../components/sourceTableList";
import { StatusBadge } from "../../components/statusBadge";
import { capturesOf } from "../../labels/kinds";
import { bytes, some } from "../../labels/numbers";
import { useKinds } from "../../useKinds";
import { detectionKind, isView, lacksKey } from "./detection";
import { captureOf, chosenOf, type Draft, isBlocked, keyOf, lacksIdentity, nameOf, patternOf, type StepProps } from "./draft";
import { Patterns } from "./patterns";
import { sourceTablesQuery } from "./queries";

/** How the source is read, and which of its tables; `all`: all that can be are chosen to begin with. */
export function TablesStep({ source, ...props }: StepProps & { all: boolean; source: Connection }) {
  const { draft, onChange } = props;
  const tables = useQuery(sourceTablesQuery(draft.source, draft.options.capture));
  const captures = capturesOf(useKinds(), source);
  const capture = captureOf(captures, draft.options);
  const takesKey = detectionKind(capture)?.key === true;
  return (
    <>
      {captures.length > 0 && (
        <Radios
          legend="How changes are read from the source"
          value={capture?.kind ?? ""}
          choices={captures.map(({ kind, title, description }) => ({ value: kind, label: title, hint: description }))}
          onChange={(kind) => onChange(withCapture(draft, kind))}
        />
      )}
      {tables.data === undefined && tables.error === null && <p className="soft">The engine asks the source what it has.</p>}
      <QueryBoundary query={tables}>{(found) => <Choice {...props} found={found} takesKey={takesKey} />}</QueryBoundary>
      {(tables.data !== undefined || tables.error !== null) && (
        <div className="form-foot">
          <Next {...props} found={tables.data ?? []} />
          <button type="button" disabled={tables.isFetching} onClick={() => void tables.refetch()}>
            {tables.isFetching ? "Looking …" : "Read the source again"}
          </button>
        </div>
      )}
    </>
  );
}

/** What was entered for another capture is dropped, and so is the consent to follow inserts only: with this one it may not be needed. */
const withCapture = (draft: Draft, capture: string): Partial<Draft> => ({
  insertOnly: new Set(),
  detections: {},
  options: { ...draft.options, capture, captureSettings: {}, origin: "any", slotBudgetGib: "" },
});

function Next({ draft, onNext, found }: StepProps & { found: SourceTable[] }) {
  const none = draft.tables.size === 0 && draft.patterns.length === 0;
  const chosen = chosenOf(draft, found);
  const rows = chosen.reduce((sum, { rows_estimate }) => sum + rows_estimate, 0);
  const size = chosen.reduce((sum, table) => sum + table.bytes, 0);
  return (
    <>
      <button type="button" className="primary" disabled={none} onClick={onNext}>
        Next: options
      </button>
      <span className="soft" role="status">
        {none ? "Choose at least one table." : `${some(chosen.length, "table")} chosen, about ${some(rows, "row")}, ${bytes(size)}`}
      </span>
    </>
  );
}

interface ChoiceProps extends StepProps {
  all: boolean;
  found: SourceTable[];
  /** Whether a key can be declared for a table that has none. */
  takesKey: boolean;
}

function Choice({ draft, onChange, found, all, takesKey }: ChoiceProps) {
  const begun = useRef(false);
  useEffect(() => {
    const present = new Set(found.map(keyOf));
    const tables = [...draft.tables].filter((key) => present.has(key));
    if (tables.length < draft.tables.size) onChange({ tables: new Set(tables) });
  }, [draft.tables, found, onChange]);
  useEffect(() => {
    if (begun.current) return;
    begun.current = true;
    if (all && draft.tables.size === 0 && draft.patterns.length === 0) onChange(withAll(draft, found));
  }, [all, draft, found, onChange]);
  return (
    <>
      <SourceTableList
        tables={found}
        first={(table) => <Chosen table={table} draft={draft} onChange={onChange} />}
        headings={["Key", "To be known"]}
        rest={(table) => <Cells table={table} draft={draft} onChange={onChange} takesKey={takesKey} />}
        buttons={(shown, searched) => (
          <>
            <button type="button" onClick={() => onChange(withAll(draft, choosable(draft, shown)))}>
              Choose {searched ? "those shown" : "all"}
            </button>
            <button type="button" onClick={() => onChange(without(draft, shown))}>
              Choose none{searched ? " of those" : ""}
            </button>
          </>
        )}
        above={(shown) =>
          takesKey ? <Unkeyed draft={draft} tables={shown} /> : <Keyless draft={draft} onChange={onChange} tables={shown} />
        }
      />
      {found.length > 0 && <Patterns draft={draft} onChange={onChange} tables={found} />}
    </>
  );
}

const choosable = (draft: Draft, tables: SourceTable[]): SourceTable[] =>
  tables.filter((table) => !isBlocked(table) && patternOf(draft, table) === undefined);

type RowProps = Pick<StepProps, "draft" | "onChange"> & { table: SourceTable };

function Chosen({ table, draft, onChange }: RowProps) {
  const pattern = patternOf(draft, table);
  const named = draft.tables.has(keyOf(table));
  return (
    <>
      <label className="check">
        <input
          type="checkbox"
          checked={named || pattern !== undefined}
          disabled={(isBlocked(table) && !named) || (pattern !== undefined && !named)}
          onChange={(event) => onChange(event.target.checked ? withThese(draft, [table]) : without(draft, [table]))}
        />
        {nameOf(table)}
      </label>
      {pattern !== undefined && (
        <small>
          {named ? "by name, and by" : "by"} the pattern {`${pattern.schema}.${pattern.name}`}
        </small>
      )}
    </>
  );
}

function Cells({ table, draft, onChange, takesKey }: RowProps & { takesKey: boolean }) {
  const key = keyOf(table);
  const pattern = patternOf(draft, table);
  const consented = draft.insertOnly.has(key) || pattern?.insertOnly === true;
  const problems = consented ? table.problems.filter(({ code }) => code !== "table_no_identity") : table.problems;
  return (
    <>
      <td data-column="Key">
        {table.key.length > 0 ? <code>{table.key.join(", ")}</code> : <span className="soft">none</span>}
        {table.partitioned && <small>partitioned</small>}
        {isView(table) && <small>view</small>}
      </td>
      <td data-column="To be known" className="telling">
        {problems.length > 0 ? <Findings findings={problems} /> : !lacksIdentity(table) && <span className="soft">nothing</span>}
        {consented && lacksIdentity(table) && <StatusBadge tone="warn">Its updates and deletes are not replicated.</StatusBadge>}
        {lacksIdentity(table) && pattern === undefined && !takesKey && (
          <label className="check">
            <input
              type="checkbox"
              checked={draft.insertOnly.has(key)}
              aria-label={`Follow only inserts of ${nameOf(table)}`}
              onChange={(event) => onChange(consent(draft, [table], event.target.checked))}
            />
            Follow only its inserts
          </label>
        )}
      </td>
    </>
  );
}

/** Those that can be followed wholly, and those for which following inserts only was accepted before. */
function withAll(draft: Draft, tables: SourceTable[]): Partial<Draft> {
  const able = tables.filter((table) => !isBlocked(table) && (!lacksKey(table) || draft.insertOnly.has(keyOf(table))));
  return withThese(draft, able);
}

const withThese = (draft: Draft, tables: SourceTable[]): Partial<Draft> => ({ tables: new Set([...draft.tables, ...tables.map(keyOf)]) });

function without(draft: Draft, tables: SourceTable[]): Partial<Draft> {
  const gone = new Set(tables.map(keyOf));
  return { tables: new Set([...draft.tables].filter((key) => !gone.has(key))) };
}

/** Consent to follow only inserts of a table also chooses the table. */
function consent(draft: Draft, tables: SourceTable[], given: boolean): Partial<Draft> {
  const insertOnly = new Set(draft.insertOnly);
  for (const table of tables) {
    if (given) insertOnly.add(keyOf(table));
    else insertOnly.delete(keyOf(table));
  }
  return given ? { insertOnly, ...withThese(draft, tables) } : { insertOnly };
}

/** Tables and views that need a declared key. */
function Unkeyed({ draft, tables }: { draft: Draft; tables: SourceTable[] }) {
  const left = tables.filter((table) => lacksKey(table) && !isBlocked(table) && !draft.tables.has(keyOf(table)));
  if (left.length === 0) return null;
  return (
    <p className="note">
      {some(left.length, "table")} or {left.length === 1 ? "view" : "views"} without a key {left.length === 1 ? "is" : "are"} not chosen
      with the others. If you choose one, the next step asks for the columns that identify its rows.
    </p>
  );
}

/** Tables without a key and without consent: what they lack, and the button that consents. */
function Keyless({ draft, onChange, tables }: Pick<StepProps, "draft" | "onChange"> & { tables: SourceTable[] }) {
  const left = tables.filter(
    (table) => lacksIdentity(table) && !isBlocked(table) && !draft.insertOnly.has(keyOf(table)) && patternOf(draft, table) === undefined,
  );
  if (left.length === 0) return null;
  return (
    <div className="note tone-warn">
      <p>
        <StatusBadge tone="warn">
          {some(left.length, "table")} {left.length === 1 ? "has" : "have"} no key, and {left.length === 1 ? "is" : "are"} not chosen with
          the others.
        </StatusBadge>
      </p>
      <p>
        Only inserts of such a table can be followed: what is updated or deleted on the source stays here as it was. With a primary key or a
        REPLICA IDENTITY on the source it is followed wholly.
      </p>
      <button type="button" onClick={() => onChange(consent(draft, left, true))}>
        Choose {left.length === 1 ? "it" : "them"}, with inserts only
      </button>
    </div>
  );
}
