import type { FormEvent, KeyboardEvent, ReactNode, RefObject } from "react";
import type { QueryRequest } from "../../api/freshness";
import { typedMs } from "../../labels/durations";
import { NO_VALUE, type Parameter, parameterCount, parameterValues } from "../../labels/parameters";
import { Field, PositionField, SecondsField } from "./fields";

type Freshness = NonNullable<QueryRequest["freshness"]>;
type Mode = NonNullable<Freshness["mode"]>;
export type OnTimeout = NonNullable<Freshness["on_timeout"]>;
export type OnUnavailable = NonNullable<Freshness["on_unavailable"]>;

/** How fresh an answer has to be; the position counts with its mode only. */
export interface FreshnessWish {
  mode: Mode;
  position: string;
}

/** What is typed and chosen, but for the freshness. */
export interface Draft {
  sql: string;
  parameters: Parameter[];
  onTimeout: OnTimeout;
  onUnavailable: OnUnavailable;
  refuseEarly: boolean;
  /** In seconds. */
  freshLimit: string;
  limit: string;
  rows: string;
}

export const EMPTY: Draft = {
  sql: "",
  parameters: [],
  onTimeout: "error",
  onUnavailable: "error",
  refuseEarly: false,
  freshLimit: "10",
  limit: "30",
  rows: "1000",
};

const MOST_ROWS = 100_000;

function requestOf(draft: Draft, wish: FreshnessWish): QueryRequest {
  return {
    sql: draft.sql,
    parameters: parameterValues(draft.sql, draft.parameters),
    freshness: {
      mode: wish.mode,
      position: wish.mode === "position" ? wish.position.trim() : null,
      timeout_ms: typedMs(draft.freshLimit),
      on_timeout: draft.onTimeout,
      on_unavailable: draft.onUnavailable,
      refuse_early: draft.refuseEarly,
    },
    max_rows: Number(draft.rows),
    timeout_ms: typedMs(draft.limit),
  };
}

interface QueryFormProps {
  draft: Draft;
  onDraft: (draft: Draft) => void;
  wish: FreshnessWish;
  onWish: (wish: FreshnessWish) => void;
  sqlBox: RefObject<HTMLTextAreaElement | null>;
  pending: boolean;
  onRun: (body: QueryRequest) => void;
  children: ReactNode;
}

/** A statement with its values, the freshness that it wants, and its limits. */
export function QueryForm({ draft, onDraft, wish, onWish, sqlBox, pending, onRun, children }: QueryFormProps) {
  const set = (changes: Partial<Draft>): void => onDraft({ ...draft, ...changes });
  const waits = wish.mode !== "any";
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!pending) onRun(requestOf(draft, wish));
  };
  return (
    <form className="ask" onSubmit={submit}>
      <div className="typed whole">
        <label htmlFor="sql">One SELECT in the target's SQL</label>
        <textarea
          id="sql"
          ref={sqlBox}
          className="code"
          rows={6}
          required
          value={draft.sql}
          placeholder="SELECT count(*) FROM public.orders"
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          aria-describedby="sql-hint"
          onKeyDown={runOnEnter}
          onChange={(event) => set({ sql: event.target.value })}
        />
        <small id="sql-hint">Ctrl + Enter runs it. Use the tables' names on the target; $1, $2 … are parameters.</small>
      </div>
      <Parameters sql={draft.sql} typed={draft.parameters} onChange={(parameters) => set({ parameters })} />
      <Field legend="Required freshness">
        {MODES.map(([mode, label]) => (
          <label key={mode} className="check">
            <input type="radio" name="mode" checked={wish.mode === mode} onChange={() => onWish({ ...wish, mode })} />
            {label}
          </label>
        ))}
        {wish.mode === "position" && <PositionField value={wish.position} onChange={(position) => onWish({ ...wish, position })} />}
      </Field>
      <div className="limits">
        <SecondsField
          label="Maximum wait"
          value={draft.freshLimit}
          least={0}
          disabled={!waits}
          onChange={(freshLimit) => set({ freshLimit })}
        />
        <SecondsField label="Maximum run time" value={draft.limit} least={0.001} onChange={(limit) => set({ limit })} />
        <RowsField value={draft.rows} onChange={(rows) => set({ rows })} />
      </div>
      <Otherwise draft={draft} waits={waits} onChange={set} />
      <div className="ask-foot">
        <button type="submit" className="primary" aria-disabled={pending}>
          Run
        </button>
        {children}
      </div>
    </form>
  );
}

function runOnEnter(event: KeyboardEvent<HTMLTextAreaElement>): void {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  event.currentTarget.form?.requestSubmit();
}

const MODES: [Mode, string][] = [
  ["latest", "everything committed on the source until now"],
  ["position", "everything up to a position"],
  ["any", "the current rows, without waiting"],
];

const AT_DEADLINE: [OnTimeout, string][] = [
  ["error", "the query fails"],
  ["stale", "it returns the rows that the target has, with their age"],
  ["source", "it runs on the source"],
];

const WHILE_NOT_FOLLOWING: [OnUnavailable, string][] = [
  ["error", "the query is refused"],
  ["include", "it returns the existing rows, and names the table"],
  ["source", "it runs on the source"],
];

interface OtherwiseProps {
  draft: Draft;
  /** Else there is no deadline to miss. */
  waits: boolean;
  onChange: (changes: Partial<Draft>) => void;
}

/** What happens if the target does not have the wanted rows. */
function Otherwise({ draft, waits, onChange }: OtherwiseProps) {
  return (
    <div className="otherwise whole">
      <Choice
        label="If they are not there at the end of the wait"
        value={draft.onTimeout}
        choices={AT_DEADLINE}
        disabled={!waits}
        onChange={(onTimeout) => onChange({ onTimeout })}
      />
      <Choice
        label="If a table does not follow its source"
        value={draft.onUnavailable}
        choices={WHILE_NOT_FOLLOWING}
        onChange={(onUnavailable) => onChange({ onUnavailable })}
      />
      <label className="check">
        <input
          type="checkbox"
          checked={draft.refuseEarly}
          disabled={!waits}
          onChange={(event) => onChange({ refuseEarly: event.target.checked })}
        />
        End the wait at once if it is expected to be too long
      </label>
    </div>
  );
}

interface ChoiceProps<Value extends string> {
  label: string;
  value: Value;
  choices: [Value, string][];
  disabled?: boolean;
  onChange: (value: Value) => void;
}

const Choice = <Value extends string>({ label, value, choices, disabled = false, onChange }: ChoiceProps<Value>) => (
  <label className="typed">
    <span>{label}</span>
    <select value={value} disabled={disabled} onChange={(event) => onChange(event.target.value as Value)}>
      {choices.map(([each, words]) => (
        <option key={each} value={each}>
          {words}
        </option>
      ))}
    </select>
  </label>
);

interface ParametersProps {
  sql: string;
  typed: Parameter[];
  onChange: (typed: Parameter[]) => void;
}

/** A value for each `$n` of the statement. */
function Parameters({ sql, typed, onChange }: ParametersProps) {
  const count = parameterCount(sql);
  if (count === 0) return null;
  const all = Array.from({ length: count }, (_, at) => typed[at] ?? NO_VALUE);
  const set = (at: number, changes: Partial<Parameter>): void => {
    const next = Array.from({ length: Math.max(count, typed.length) }, (_, each) => typed[each] ?? NO_VALUE);
    next[at] = { ...(next[at] ?? NO_VALUE), ...changes };
    onChange(next);
  };
  return (
    <fieldset className="field whole parameters">
      <legend>Parameters</legend>
      {all.map(({ text, isNull }, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a parameter is its number.
        <div key={at} className="with-unit">
          <label>
            <code>${at + 1}</code>
            <input
              value={isNull ? "" : text}
              disabled={isNull}
              autoComplete="off"
              spellCheck={false}
              onChange={(event) => set(at, { text: event.target.value })}
            />
          </label>
          <label className="check">
            <input
              type="checkbox"
              checked={isNull}
              aria-label={`$${at + 1} is NULL`}
              onChange={(event) => set(at, { isNull: event.target.checked })}
            />
            NULL
          </label>
        </div>
      ))}
    </fieldset>
  );
}

const RowsField = ({ value, onChange }: { value: string; onChange: (value: string) => void }) => (
  <div className="typed">
    <label htmlFor="rows">Maximum rows</label>
    <span className="with-unit">
      <input
        id="rows"
        type="number"
        inputMode="numeric"
        min={1}
        max={MOST_ROWS}
        required
        value={value}
        aria-describedby="rows-unit"
        onChange={(event) => onChange(event.target.value)}
      />
      <span id="rows-unit" className="soft">
        rows
      </span>
    </span>
  </div>
);
