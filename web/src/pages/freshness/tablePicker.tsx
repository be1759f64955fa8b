import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import type { Table } from "../../api/client";
import { tablesQuery } from "../../api/queries";
import { QueryBoundary } from "../../components/queryBoundary";
import { matches } from "../../filters";
import { some } from "../../labels/numbers";
import { tableName, tableStateWords } from "../../labels/tables";

interface TablePickerProps {
  subscription: string;
  /** Names as JSON, `{"schema": …, "name": …}`: names may hold dots. */
  picked: ReadonlySet<string>;
  onPick: (picked: ReadonlySet<string>) => void;
}

const keyOf = ({ schema, name }: Table): string => JSON.stringify({ schema, name });

/** Chooses some of a subscription's tables. */
export function TablePicker({ subscription, picked, onPick }: TablePickerProps) {
  const tables = useQuery(tablesQuery(subscription, false));
  return <QueryBoundary query={tables}>{(all) => <List all={all} picked={picked} onPick={onPick} />}</QueryBoundary>;
}

function List({ all, picked, onPick }: { all: Table[] } & Pick<TablePickerProps, "picked" | "onPick">) {
  const [typed, setTyped] = useState("");
  const id = useId();
  const shown = all
    .filter((table) => picked.has(keyOf(table)) || matches(typed, tableName(table)))
    .sort((a, b) => tableName(a).localeCompare(tableName(b)));
  const known = new Set(all.map(keyOf));
  const gone = [...picked].filter((key) => !known.has(key));
  const toggle = (key: string): void => {
    const next = new Set(picked);
    if (!next.delete(key)) next.add(key);
    onPick(next);
  };
  return (
    <div className="typed">
      <label htmlFor={id}>Find by name</label>
      <input id={id} type="search" value={typed} autoComplete="off" spellCheck={false} onChange={(event) => setTyped(event.target.value)} />
      <ul className="picker">
        {shown.map((table) => (
          <li key={table.id}>
            <label className="check">
              <input type="checkbox" checked={picked.has(keyOf(table))} onChange={() => toggle(keyOf(table))} />
              <span>
                {tableName(table)} {table.state !== "live" && <span className="soft">{tableStateWords(table.state).word}</span>}
              </span>
            </label>
          </li>
        ))}
        {gone.map((key) => (
          <li key={key}>
            <label className="check">
              <input type="checkbox" checked onChange={() => toggle(key)} />
              <span>
                {tableName(JSON.parse(key) as Pick<Table, "schema" | "name">)} <span className="soft">not replicated</span>
              </span>
            </label>
          </li>
        ))}
      </ul>
      <small role="status">{picked.size === 0 ? "Choose at least one." : `${some(picked.size, "table")} chosen`}</small>
    </div>
  );
}
