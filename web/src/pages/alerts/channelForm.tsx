import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { type AlertChannel, storeAlertChannel } from "../../api/alerts";
import { fieldError } from "../../api/fieldErrors";
import { keys, subscriptionsQuery } from "../../api/queries";
import { Field, Radios, TextField } from "../../components/field";
import { ProblemNote } from "../../components/problemNote";
import { bodyOf, CAUSE_WORDS, CAUSES, KIND_WORDS, KINDS, newSigningKey, SECRETS, type Typed, typedOf } from "../../labels/alerts";
import { NAME_HINT, NAME_PATTERN } from "../../labels/kinds";
import { queryClient } from "../../stream/queryClient";
import { collided } from "../wizard/queries";

interface ChannelFormProps {
  /** What is changed; null makes a new one. */
  present: AlertChannel | null;
  /** Names that are given away. */
  taken: string[];
  /** `key`: the signing key that was made here; null where none was. */
  onStored: (name: string, key: string | null) => void;
}

/** Declares an alert channel. */
export function ChannelForm({ present, taken, onStored }: ChannelFormProps) {
  const [name, setName] = useState(present?.name ?? "");
  const [typed, setTyped] = useState<Typed>(() => typedOf(present));
  const [madeKey, setMadeKey] = useState<string | null>(null);
  const save = useMutation({
    mutationFn: () => store(name, typed, present === null),
    onSuccess: async () => {
      await queryClient.invalidateQueries({ queryKey: keys.alertChannels });
      onStored(name, typed.kind === "webhook" && typed.secret !== "" && typed.secret === madeKey ? madeKey : null);
    },
  });
  const set = (changes: Partial<Typed>): void => {
    save.reset();
    setTyped({ ...typed, ...changes });
  };
  const given = present === null && taken.includes(name);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!given && !save.isPending) save.mutate();
  };
  const makeKey = (): void => {
    const made = newSigningKey();
    setMadeKey(made);
    set({ secret: made });
  };
  return (
    <form className="connection-form" onSubmit={submit}>
      {present === null && (
        <>
          <Radios
            legend="Kind"
            value={typed.kind}
            choices={KINDS.map((kind) => ({ value: kind, label: KIND_WORDS[kind].title, hint: KIND_WORDS[kind].means }))}
            onChange={(kind) => set({ kind, secret: "" })}
          />
          <TextField
            label="Name of the alert channel"
            hint={NAME_HINT}
            wrong={given ? "An alert channel with this name already exists." : null}
            value={name}
            pattern={NAME_PATTERN}
            required
            onChange={(value) => {
              save.reset();
              setName(value);
            }}
          />
        </>
      )}
      <Receiver typed={typed} error={save.error} onChange={set} />
      <Secret
        typed={typed}
        isSet={present !== null && present.secrets_set.length > 0}
        isMade={typed.secret !== "" && typed.secret === madeKey}
        wrong={fieldError(save.error, "/secrets")}
        onChange={set}
        onMake={makeKey}
      />
      <Causes typed={typed} error={save.error} onChange={set} />
      {save.error !== null && <ProblemNote error={save.error} />}
      <div className="form-foot">
        <button type="submit" className="primary" disabled={given || save.isPending}>
          {save.isPending ? "Storing …" : present === null ? "Create" : "Save"}
        </button>
      </div>
    </form>
  );
}

interface PartProps {
  typed: Typed;
  onChange: (changes: Partial<Typed>) => void;
}

function Receiver({ typed, error, onChange }: PartProps & { error: unknown }) {
  const line = (name: "url" | "host" | "port" | "user" | "sender", label: string, hint?: string, required = true) => (
    <TextField
      label={label}
      hint={hint}
      wrong={fieldError(error, `/settings/${name}`)}
      value={typed[name]}
      required={required}
      onChange={(value) => onChange({ [name]: value })}
    />
  );
  if (typed.kind === "slack") return null;
  if (typed.kind === "webhook") return line("url", "Address", "Begins with https:// or http://; without a user and a password.");
  return (
    <div className="fields">
      {line("host", "Mail server")}
      {line("port", "Port")}
      <Field label="Encryption" hint="Certificates are verified.">
        {(described) => (
          <select {...described} value={typed.security} onChange={(event) => onChange({ security: event.target.value })}>
            <option value="starttls">STARTTLS</option>
            <option value="tls">TLS</option>
            <option value="none">none; without a user only</option>
          </select>
        )}
      </Field>
      {line("user", "User", "Empty if the server wants none.", false)}
      {line("sender", "Sender")}
      <Field label="Recipients" hint="One on each line." wrong={fieldError(error, "/settings/recipients")}>
        {(described) => (
          <textarea
            {...described}
            rows={3}
            required
            spellCheck={false}
            value={typed.recipients}
            onChange={(event) => onChange({ recipients: event.target.value })}
          />
        )}
      </Field>
    </div>
  );
}

interface SecretProps extends PartProps {
  isSet: boolean;
  /** The key in the field was made here. */
  isMade: boolean;
  wrong: string | null;
  onMake: () => void;
}

function Secret({ typed, isSet, isMade, wrong, onChange, onMake }: SecretProps) {
  const { label, required } = SECRETS[typed.kind];
  const kept = isSet ? "One is set, which is never shown. Leave this empty to keep it." : "It is stored encrypted, and never shown again.";
  return (
    <div className="fields">
      <TextField
        label={label}
        type="password"
        autoComplete="new-password"
        hint={isMade ? "A new key, which is shown once it is stored." : kept}
        wrong={wrong}
        value={typed.secret}
        required={required && !isSet}
        disabled={typed.noSecret}
        onChange={(secret) => onChange({ secret })}
      />
      {typed.kind === "webhook" && (
        <div className="beside-field">
          <button type="button" onClick={onMake}>
            Make a key
          </button>
        </div>
      )}
      {isSet && !required && (
        <label className="check">
          <input type="checkbox" checked={typed.noSecret} onChange={(event) => onChange({ secret: "", noSecret: event.target.checked })} />
          Remove the {label.toLowerCase()} that is set
        </label>
      )}
    </div>
  );
}

/** What it sends notices of, and how often. */
function Causes({ typed, error, onChange }: PartProps & { error: unknown }) {
  const subscriptions = useQuery(subscriptionsQuery());
  const names = [...new Set([...(subscriptions.data ?? []).map(({ name }) => name), ...typed.subscriptions])].sort();
  return (
    <>
      <Some
        legend="Causes"
        all="all causes"
        names={CAUSES}
        wordsOf={(cause) => CAUSE_WORDS[cause]}
        chosen={typed.causes}
        onChange={(causes) => onChange({ causes })}
      />
      {names.length > 0 && (
        <Some
          legend="Subscriptions"
          all="all subscriptions, also later ones"
          names={names}
          wordsOf={(name) => name}
          chosen={typed.subscriptions}
          onChange={(chosen) => onChange({ subscriptions: chosen })}
        />
      )}
      <TextField
        label="Repeated after (hours)"
        hint="While a cause lasts, its notice is sent again after this time."
        wrong={fieldError(error, "/repeat_seconds")}
        value={typed.repeatHours}
        required
        inputMode="decimal"
        pattern="[0-9]+(\.[0-9]+)?"
        onChange={(repeatHours) => onChange({ repeatHours })}
      />
    </>
  );
}

interface SomeProps<Name extends string> {
  legend: string;
  all: string;
  names: readonly Name[];
  wordsOf: (name: Name) => string;
  /** Empty: all. */
  chosen: ReadonlySet<string>;
  onChange: (chosen: ReadonlySet<string>) => void;
}

/** All, or some of them. */
function Some<Name extends string>({ legend, all, names, wordsOf, chosen, onChange }: SomeProps<Name>) {
  const toggle = (name: Name): void => {
    const next = new Set(chosen);
    if (!next.delete(name)) next.add(name);
    onChange(next);
  };
  return (
    <fieldset className="radios">
      <legend>{legend}</legend>
      <label className="check">
        <input type="checkbox" checked={chosen.size === 0} onChange={() => onChange(new Set())} />
        {all}
      </label>
      {names.map((name) => (
        <label key={name} className="check">
          <input type="checkbox" checked={chosen.has(name)} onChange={() => toggle(name)} />
          {wordsOf(name)}
        </label>
      ))}
    </fieldset>
  );
}

async function store(name: string, typed: Typed, isNew: boolean): Promise<void> {
  try {
    await storeAlertChannel(name, bodyOf(typed), isNew);
  } catch (error) {
    throw collided(error, `An alert channel named ${name} already exists.`, "Choose another name.");
  }
}
