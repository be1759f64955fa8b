import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import type { Table } from "../../api/client";
import { columnsQuery } from "../../api/freshness";
import { Problem } from "../../api/problem";
import { tablesQuery } from "../../api/queries";
import { QueryBoundary } from "../../components/queryBoundary";
import { matches } from "../../filters";
import { identifier, relation } from "../../labels/identifiers";
import { count, some } from "../../labels/numbers";
import { qualified, tableName, tableStateWords } from "../../labels/tables";

interface SchemaBrowserProps {
  subscription: string;
  /** Called with a name as statements have it. */
  onInsert: (text: string) => void;
}

const AT_ONCE = 100;

/** The tables of the copy by their names on the target, with their columns. */
export function SchemaBrowser({ subscription, onInsert }: SchemaBrowserProps) {
  const tables = useQuery(tablesQuery(subscription, false));
  return (
    <section className="schema" aria-labelledby="schema">
      <h3 id="schema">Tables of the copy</h3>
      <QueryBoundary query={tables}>
        {(all) => <Relations subscription={subscription} relations={relationsOf(all)} onInsert={onInsert} />}
      </QueryBoundary>
    </section>
  );
}

/** What can be read: a table of the copy, or a shared table. */
interface Relation {
  schema: string;
  name: string;
  /** What is to be known of it, in words. */
  notes: string[];
  /** Its columns are read again when this changes. */
  version: string;
}

function relationsOf(tables: Table[]): Relation[] {
  const shared = new Map<string, Relation>();
  const own = tables.map((table): Relation => {
    const view = table.shared_into;
    if (view != null) {
      shared.set(qualified(view), { schema: view.schema, name: view.name, notes: ["shared table"], version: table.state_since ?? "" });
    }
    const notes = [
      ...(table.state === "live" ? [] : [tableStateWords(table.state).word]),
      ...(tableName(table) === qualified(table.target) ? [] : [`of ${tableName(table)}`]),
      ...(table.copied.rows == null ? [] : [`${count(table.copied.rows)} rows when copied`]),
    ];
    return { ...table.target, notes, version: `${table.id} ${table.state} ${table.state_since ?? ""}` };
  });
  return [...own, ...shared.values()].sort((a, b) => qualified(a).localeCompare(qualified(b)));
}

function Relations({ subscription, relations, onInsert }: SchemaBrowserProps & { relations: Relation[] }) {
  const [typed, setTyped] = useState("");
  const id = useId();
  if (relations.length === 0) return <p className="soft">It has no tables.</p>;
  const found = relations.filter((one) => matches(typed, qualified(one)));
  return (
    <>
      <div className="typed">
        <label htmlFor={id}>Find by name</label>
        <input
          id={id}
          type="search"
          value={typed}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => setTyped(event.target.value)}
        />
      </div>
      <ul className="schema-list">
        {found.slice(0, AT_ONCE).map((one) => (
          <Entry key={qualified(one)} subscription={subscription} one={one} onInsert={onInsert} />
        ))}
      </ul>
      <small role="status">
        {found.length > AT_ONCE ? `${AT_ONCE} of ${some(found.length, "table")}; type a part of the name` : some(found.length, "table")}
      </small>
    </>
  );
}

interface EntryProps {
  subscription: string;
  one: Relation;
  onInsert: (text: string) => void;
}

function Entry({ subscription, one, onInsert }: EntryProps) {
  const [open, setOpen] = useState(false);
  const id = useId();
  const name = qualified(one);
  return (
    <li>
      <div className="schema-head">
        <button
          type="button"
          className="quiet"
          aria-expanded={open}
          aria-controls={id}
          aria-label={`Columns of ${name}`}
          onClick={() => setOpen(!open)}
        >
          <span aria-hidden="true">{open ? "▾" : "▸"}</span>
        </button>
        <button type="button" className="link" aria-label={`Insert ${name}`} onClick={() => onInsert(relation(one))}>
          {name}
        </button>
      </div>
      {one.notes.length > 0 && <small className="soft">{one.notes.join("; ")}</small>}
      <div id={id}>{open && <Columns subscription={subscription} one={one} onInsert={onInsert} />}</div>
    </li>
  );
}

function Columns({ subscription, one, onInsert }: EntryProps) {
  const columns = useQuery(columnsQuery(subscription, relation(one), one.version));
  if (columns.data === undefined) {
    if (columns.error === null) return <p className="soft">Reading …</p>;
    const { detail, remedy } = Problem.from(columns.error);
    return (
      <p className="soft">
        They cannot be read: {detail} {remedy}
      </p>
    );
  }
  return (
    <ul className="schema-columns">
      {columns.data.map(({ name, type }) => (
        <li key={name}>
          <button type="button" className="link" aria-label={`Insert ${name}`} onClick={() => onInsert(identifier(name))}>
            {name}
          </button>{" "}
          <small className="soft">{type}</small>
        </li>
      ))}
    </ul>
  );
}
