import { type ReactNode, useEffect, useRef, useState } from "react";
import type { Connection, ConnectionKind, SampleSource, Subscription } from "../../api/client";
import { Radios, TextField } from "../../components/field";
import { isEmbedded, kindLabel, kindsFor, NAME_HINT, NAME_PATTERN, nodesOf, placeOf, type Role, rolesOf } from "../../labels/kinds";
import { useKinds } from "../../useKinds";
import { ConnectionForm, type Suggestion } from "./connectionForm";
import type { StepProps } from "./draft";
import { SampleSourcePart } from "./sampleSource";

interface EndsStepProps extends StepProps {
  connections: Connection[];
  subscriptions: Subscription[];
  sample: SampleSource | null;
}

const NAME = new RegExp(`^${NAME_PATTERN}$`);

/** Where the rows come from, where they go to, and what the subscription is called. */
export function EndsStep({ draft, onChange, onNext, connections, subscriptions, sample }: EndsStepProps) {
  // The name follows that of the source until another one is typed.
  const [named, setNamed] = useState(draft.name !== draft.source);
  const kinds = useKinds();
  const names = subscriptions.map(({ name }) => name);
  const fresh = (source: string): string => (named ? draft.name : freeName(source, names));
  const source = connections.some(({ name }) => name === draft.source) ? draft.source : "";
  const target = connections.some(({ name }) => name === draft.target) ? draft.target : "";
  const name = named ? draft.name : freeName(draft.name, names);
  const given = names.includes(name);
  const ready = source !== "" && target !== "" && NAME.test(name) && !given;
  const ofSample = sample !== null && source === sample.connection;
  const sources = connections.filter((connection) => rolesOf(kinds, connection).includes("source"));
  const nodes = connections.filter(({ name }) => name === source).flatMap(nodesOf);
  const taken = new Set([source, sample?.connection, ...nodes.map(({ connection }) => connection)]);
  const targets = connections.filter((connection) => rolesOf(kinds, connection).includes("target") && !taken.has(connection.name));
  const chooseSource = (chosen: string): void => {
    if (chosen === draft.source) return;
    const ofChosen = connections.filter((each) => each.name === chosen).flatMap(nodesOf);
    const kept = [chosen, ...ofChosen.map(({ connection }) => connection)].includes(draft.target) ? "" : draft.target;
    onChange({ source: chosen, target: kept, name: fresh(chosen), tables: new Set(), insertOnly: new Set(), patterns: [] });
  };
  const next = (): void => {
    onChange({ name });
    onNext();
  };
  return (
    <>
      <div className="ends">
        <End
          role="source"
          title="From"
          chosen={source}
          connections={sources}
          taken={connections}
          suggestion={{}}
          onChoose={chooseSource}
          below={sample?.state === "absent" || sample?.state === "starting" ? <NoSource /> : null}
        />
        <End
          key={ofSample ? "of-sample" : "other"}
          role="target"
          title="To"
          chosen={target}
          connections={targets}
          taken={connections}
          suggestion={suggestedTarget(kinds, connections, ofSample ? sample : null)}
          onChoose={(chosen) => onChange({ target: chosen })}
        />
      </div>
      <div className="name-of-it">
        <TextField
          label="Name of the subscription"
          hint={NAME_HINT}
          wrong={given ? "A subscription with this name already exists." : null}
          value={name}
          pattern={NAME_PATTERN}
          required
          onChange={(value) => {
            setNamed(true);
            onChange({ name: value });
          }}
        />
      </div>
      <div className="form-foot">
        <button type="button" className="primary" disabled={!ready} onClick={next}>
          Next: tables
        </button>
        {!ready && !given && <span className="soft">{missing(source, target)}</span>}
      </div>
    </>
  );
}

const missing = (source: string, target: string): string =>
  source === "" ? "Choose or add a source." : target === "" ? "Choose or add a target." : "It needs a name.";

interface EndProps {
  role: Role;
  title: string;
  chosen: string;
  connections: Connection[];
  taken: Connection[];
  suggestion: Suggestion;
  onChoose: (name: string) => void;
  below?: ReactNode;
}

const NoSource = () => (
  <div className="below">
    <p className="soft">No source at hand? The server can run a small one.</p>
    <SampleSourcePart />
  </div>
);

const NEW = "";

function End({ role, title, chosen, connections, taken, suggestion, onChoose, below }: EndProps) {
  const kinds = useKinds();
  const [making, setMaking] = useState(false);
  const before = useRef(0);
  useEffect(() => {
    const only = before.current === 0 && connections.length === 1 ? connections[0] : undefined;
    before.current = connections.length;
    // No database is written to only because it was the only one to choose, and what the engine writes to is no source.
    if (only !== undefined && chosen === "" && (role === "source") !== isEmbedded(kinds, only)) onChoose(only.name);
  });
  const asNew = making || connections.length === 0;
  return (
    <section className="end" aria-label={title}>
      <h2>{title}</h2>
      {connections.length > 0 && (
        <Radios
          legend={role === "source" ? "Source" : "Target"}
          value={asNew ? NEW : chosen === "" ? "–" : chosen}
          choices={[
            ...connections.map((connection) => ({
              value: connection.name,
              label: connection.name,
              hint: `${kindLabel(kinds, connection.kind)}, ${placeOf(connection)}`,
            })),
            { value: NEW, label: role === "source" ? "Another source" : "Another target" },
          ]}
          onChange={(value) => {
            setMaking(value === NEW);
            onChoose(value);
          }}
        />
      )}
      {asNew && (
        <ConnectionForm
          present={null}
          role={role}
          suggestion={suggestion}
          taken={taken.map(({ name }) => name)}
          onSaved={(name) => {
            setMaking(false);
            onChoose(name);
          }}
        />
      )}
      {below}
    </section>
  );
}

/** A file beside the sample's own data where the source is the sample, else a name to begin with. */
function suggestedTarget(kinds: readonly ConnectionKind[], connections: Connection[], sample: SampleSource | null): Suggestion {
  const name = freeName(
    "mart",
    connections.map((connection) => connection.name),
  );
  const place = sample?.target_path;
  const used = connections.some(({ settings }) => settings.path === place);
  const kind = kindsFor(kinds, "target").find(({ embedded }) => embedded);
  if (kind === undefined) return { name };
  return { name, kind: kind.kind, values: { path: place === undefined || used ? `${name}.${kind.kind}` : place } };
}

function freeName(wanted: string, taken: string[]): string {
  if (wanted === "" || !taken.includes(wanted)) return wanted;
  for (let number = 2; ; number += 1) if (!taken.includes(`${wanted}-${number}`)) return `${wanted}-${number}`;
}
