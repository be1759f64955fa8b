import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import type { Action } from "../../actions";
import { fieldError } from "../../api/fieldErrors";
import { keys } from "../../api/queries";
import { changeSettings, createToken, type Role, revokeToken, type Token, tokensQuery } from "../../api/tokens";
import { ActionButtons } from "../../components/actions";
import { announce } from "../../components/announcements";
import { Field, Radios, TextField } from "../../components/field";
import { Page } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { ShownOnce } from "../../components/shownOnce";
import { NAME_HINT, NAME_PATTERN } from "../../labels/kinds";
import { ROLES, settingsChange, settingsOf, settingsText } from "../../labels/tokens";
import { queryClient } from "../../stream/queryClient";
import { usePermission } from "../../usePermission";

const read = (): Promise<void> => queryClient.invalidateQueries({ queryKey: keys.tokens });

/** Access tokens, with what their SQL sessions begin with. */
export function TokensPage() {
  const mayRead = usePermission()("admin");
  const tokens = useQuery({ ...tokensQuery(), enabled: mayRead });
  if (!mayRead) {
    return (
      <Page title="Tokens">
        <p className="prose">Tokens are managed by administrators: this needs the role admin.</p>
      </Page>
    );
  }
  return (
    <Page title="Tokens">
      <QueryBoundary query={tokens}>
        {(items) => (
          <>
            <ul className="connections">
              {items.map((item) => (
                <Entry key={item.id} token={item} />
              ))}
            </ul>
            <h2>New token</h2>
            <NewToken taken={items.map(({ name }) => name)} />
          </>
        )}
      </QueryBoundary>
    </Page>
  );
}

function Entry({ token }: { token: Token }) {
  const [changing, setChanging] = useState(false);
  const { name, role, settings } = token;
  const shown = settingsText(settings);
  return (
    <li>
      <div className="connection-head">
        <h2>{name}</h2>
        <p className="soft">{role}</p>
        <div className="row-actions">
          {role !== "engine" && !changing && (
            <button type="button" className="quiet" aria-label={`Change ${name}`} onClick={() => setChanging(true)}>
              Change
            </button>
          )}
          <ActionButtons actions={[revocation(token)]} />
        </div>
      </div>
      {changing ? (
        <Settings token={token} onDone={() => setChanging(false)} />
      ) : (
        shown !== "" && (
          <p>
            SQL sessions begin with <code>{shown.replaceAll("\n", ", ")}</code>
          </p>
        )
      )}
    </li>
  );
}

const revocation = ({ id, name }: Token): Action => ({
  verb: "Revoke",
  title: `Revoke the token ${name}?`,
  does: ["Requests and logins with it are refused from then on."],
  loses: "It cannot be restored: its holder needs another one.",
  name,
  serious: true,
  role: "admin",
  run: () => revokeToken(id),
  done: `${name}: the token was revoked.`,
});

interface SettingsFieldProps {
  value: string;
  wrong: string | null;
  onChange: (value: string) => void;
}

function SettingsField({ value, wrong, onChange }: SettingsFieldProps) {
  return (
    <Field
      label="Settings of its SQL sessions"
      hint="One on each line, such as penstock.freshness = latest: what SET accepts. A session may set others."
      wrong={wrong}
    >
      {(described) => (
        <textarea {...described} rows={3} spellCheck={false} value={value} onChange={(event) => onChange(event.target.value)} />
      )}
    </Field>
  );
}

function Settings({ token, onDone }: { token: Token; onDone: () => void }) {
  const [text, setText] = useState(() => settingsText(token.settings));
  const { settings, wrong } = settingsOf(text);
  const save = useMutation({
    mutationFn: () => changeSettings(token.id, settingsChange(token.settings, settings)),
    onSuccess: async () => {
      await read();
      onDone();
      announce(`${token.name}: new SQL sessions begin with the changed settings.`);
    },
  });
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (wrong === null && !save.isPending) save.mutate();
  };
  const change = (value: string): void => {
    save.reset();
    setText(value);
  };
  return (
    <form className="connection-form" onSubmit={submit}>
      <SettingsField value={text} wrong={wrong ?? fieldError(save.error, "/settings")} onChange={change} />
      {save.error !== null && <ProblemNote error={save.error} />}
      <div className="form-foot">
        <button type="submit" className="primary" disabled={wrong !== null || save.isPending}>
          {save.isPending ? "Storing …" : "Save"}
        </button>
        <button type="button" onClick={onDone}>
          Cancel
        </button>
      </div>
    </form>
  );
}

function NewToken({ taken }: { taken: string[] }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [text, setText] = useState("");
  const { settings, wrong } = settingsOf(text);
  const given = taken.includes(name);
  const make = useMutation({ mutationFn: () => createToken(name, role, role === "engine" ? {} : settings), onSuccess: read });
  if (make.data !== undefined) {
    const done = (): void => {
      make.reset();
      setName("");
      setText("");
    };
    return (
      <ShownOnce
        text={`The token ${make.data.name} is stored. Give its text to its holder: it is shown only now.`}
        label={`Text of ${make.data.name}`}
        secret={make.data.token}
        taken="I have the token"
        onDone={done}
      />
    );
  }
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!given && wrong === null && !make.isPending) make.mutate();
  };
  const typing = (set: (value: string) => void) => (value: string) => {
    make.reset();
    set(value);
  };
  return (
    <form className="connection-form" onSubmit={submit}>
      <TextField
        label="Name of the token"
        hint={NAME_HINT}
        wrong={given ? "A token with this name already exists." : null}
        value={name}
        pattern={NAME_PATTERN}
        required
        onChange={typing(setName)}
      />
      <Radios legend="Role" value={role} choices={ROLES} onChange={setRole} />
      {role !== "engine" && <SettingsField value={text} wrong={wrong ?? fieldError(make.error, "/settings")} onChange={typing(setText)} />}
      {make.error !== null && <ProblemNote error={make.error} />}
      <div className="form-foot">
        <button type="submit" className="primary" disabled={given || wrong !== null || make.isPending}>
          {make.isPending ? "Storing …" : "Create"}
        </button>
      </div>
    </form>
  );
}
