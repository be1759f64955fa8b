import { useId, useRef, useState } from "react";
import { Link } from "wouter";
import type { Action } from "../../actions";
import { subscriptionAddress } from "../../addresses";
import type { Subscription } from "../../api/client";
import { changedMeanwhile, patchUnchanged } from "../../api/patches";
import { keys } from "../../api/queries";
import { ActionButtons } from "../../components/actions";
import { Fact, Facts } from "../../components/facts";
import { Section } from "../../components/page";
import { Moment } from "../../components/time";
import { count } from "../../labels/numbers";
import {
  type ChoiceSetting,
  captureGroup,
  type Effect,
  type NumberSetting,
  patchOf,
  SETTINGS,
  type Setting,
  type SettingGroup,
  settingValue,
  shown,
  type Value,
  valueWords,
} from "../../labels/settings";
import { queryClient } from "../../stream/queryClient";
import { useKinds } from "../../useKinds";
import { usePermission } from "../../usePermission";
import { SubscriptionFrame } from "./frame";
import { SingleTables } from "./singleTables";

const EFFECTS: Record<Effect, string> = { "at once": "at once", "next start": "at the next start" };

/** What was declared of a subscription, what it means, and changing it. */
export function SettingsPage({ name }: { name: string }) {
  const captures = useKinds().flatMap((kind) => kind.captures);
  return (
    <SubscriptionFrame name={name} part="settings">
      {(subscription) => (
        <>
          <Section title="Declared">
            <Facts>
              <Fact name="Source">{subscription.source}</Fact>
              <Fact name="Target">{subscription.target}</Fact>
              <Fact name="Requested state">{subscription.desired_state}</Fact>
              <Fact name="Tables and patterns" note={<Link href={subscriptionAddress(name)}>which state they are in</Link>}>
                {count(subscription.tables.length)}
              </Fact>
              <Fact name="Name on the source">
                <code>{subscription.slot}</code>
              </Fact>
              <Fact name="Created">
                <Moment at={subscription.created_at} />
              </Fact>
              <Fact name="Changed">
                <Moment at={subscription.updated_at} />
              </Fact>
            </Facts>
          </Section>
          {[
            ...captures
              .filter(({ kind }) => kind === subscription.capture.kind)
              .slice(0, 1)
              .map(captureGroup),
            ...SETTINGS,
          ].map((group) => (
            <Group key={group.title} group={group} subscription={subscription} />
          ))}
          <SingleTables subscription={subscription} />
        </>
      )}
    </SubscriptionFrame>
  );
}

interface Change {
  setting: Setting;
  before: Value | undefined;
  value: Value;
}

/** What was entered, by setting; a number's as text. */
type Draft = Record<string, string | boolean>;

const keyOf = (setting: Setting): string => setting.path.join(".");

function Group({ group, subscription }: { group: SettingGroup; subscription: Subscription }) {
  const [draft, setDraft] = useState<Draft>({});
  const place = useRef<HTMLParagraphElement>(null);
  const mayChange = usePermission()("operator");
  const changes = changesOf(group, subscription, draft);
  const wrong = group.settings.some((setting) => setting.kind === "number" && Number.isNaN(parsed(setting, draft[keyOf(setting)])));
  const leave = (): void => {
    setDraft({});
    requestAnimationFrame(() => place.current?.focus());
  };
  return (
    <Section title={group.title}>
      <fieldset disabled={!mayChange}>
        <legend className="unseen">{group.title}</legend>
        {group.settings.map((setting) => (
          <Entry
            key={keyOf(setting)}
            setting={setting}
            present={settingValue(subscription, setting.path)}
            entered={draft[keyOf(setting)]}
            onEnter={(value) => setDraft((before) => ({ ...before, [keyOf(setting)]: value }))}
          />
        ))}
      </fieldset>
      <div className="save">
        <p ref={place} tabIndex={-1} className="soft" role="status">
          {!mayChange
            ? "Changes require an operator's token; yours is read-only."
            : wrong
              ? "A number is needed."
              : changes.length === 0
                ? "Nothing is changed."
                : `${changes.length === 1 ? "One change" : `${changes.length} changes`}, not saved yet.`}
        </p>
        {changes.length > 0 && !wrong && <ActionButtons first actions={[saving(subscription.name, group, changes, leave)]} />}
        {Object.keys(draft).length > 0 && (
          <button type="button" className="quiet" onClick={leave}>
            Put back
          </button>
        )}
      </div>
    </Section>
  );
}

function changesOf(group: SettingGroup, subscription: Subscription, draft: Draft): Change[] {
  return group.settings.flatMap((setting) => {
    const entered = draft[keyOf(setting)];
    if (entered === undefined) return [];
    const before = settingValue(subscription, setting.path);
    const value = setting.kind === "number" ? parsed(setting, entered) : entered;
    if (value === undefined) return [];
    const same = setting.kind === "number" && typeof before === "number" ? entered === shown(setting, before) : value === (before ?? null);
    return same ? [] : [{ setting, before, value }];
  });
}

/** Null: left empty; NaN: no number; undefined: nothing was entered. */
function parsed(setting: NumberSetting, entered: string | boolean | undefined): number | null | undefined {
  if (typeof entered !== "string") return undefined;
  if (entered.trim() === "") return null;
  const value = Number(entered) * setting.per;
  return setting.per > 1 ? Math.round(value) : Number(value.toPrecision(12));
}

function saving(name: string, group: SettingGroup, changes: Change[], leave: () => void): Action {
  const waiting = changes.some(({ setting }) => setting.effect === "next start");
  return {
    verb: "Save",
    title: `Change ${group.title.toLowerCase()} of ${name}?`,
    does: [
      ...changes.map(
        ({ setting, before, value }) =>
          `${setting.label}: ${valueWords(setting, before)} → ${valueWords(setting, value)}, ${EFFECTS[setting.effect]}.`,
      ),
      ...(waiting ? ["To apply it, pause the subscription and resume it once it is paused; until then the previous settings apply."] : []),
    ],
    name,
    run: async () => {
      try {
        await save(name, changes);
      } finally {
        // What was entered stays visible until the server shows it; what prevents it is shown, too.
        await queryClient.invalidateQueries({ queryKey: keys.ofSubscription(name) });
      }
      leave();
    },
    done: `${name}: ${group.title.toLowerCase()} changed${waiting ? "; pause and resume it to apply the change." : "."}`,
  };
}

/** Changes what is still as it was shown: what another user set meanwhile is not overwritten unseen. */
async function save(name: string, changes: Change[]): Promise<void> {
  const unchanged = (present: Subscription): void => {
    for (const { setting, before } of changes) {
      const now = settingValue(present, setting.path);
      if ((now ?? null) !== (before ?? null))
        throw changedMeanwhile(`${setting.label} is ${valueWords(setting, now)} now, set by another user.`);
    }
  };
  await patchUnchanged(name, unchanged, patchOf(changes.map(({ setting, value }) => ({ path: setting.path, value }))));
}

interface EntryProps<Kind extends Setting> {
  setting: Kind;
  present: Value | undefined;
  entered: string | boolean | undefined;
  onEnter: (value: string | boolean) => void;
}

function Entry({ setting, ...rest }: EntryProps<Setting>) {
  switch (setting.kind) {
    case "number":
      return <NumberEntry setting={setting} {...rest} />;
    case "choice":
      return <ChoiceEntry setting={setting} {...rest} />;
    case "switch":
      return (
        <div className="setting">
          <label className="check">
            <input
              type="checkbox"
              checked={typeof rest.entered === "boolean" ? rest.entered : rest.present === true}
              onChange={(event) => rest.onEnter(event.target.checked)}
            />
            {setting.label}
          </label>
          <Meaning setting={setting} />
        </div>
      );
  }
}

function Meaning({ setting, id }: { setting: Setting; id?: string }) {
  return (
    <div id={id} className="soft">
      {setting.means !== "" && <p>{setting.means}</p>}
      <small>Takes effect {EFFECTS[setting.effect]}.</small>
    </div>
  );
}

function NumberEntry({ setting, present, entered, onEnter }: EntryProps<NumberSetting>) {
  const id = useId();
  const value = typeof entered === "string" ? entered : typeof present === "number" ? shown(setting, present) : "";
  return (
    <div className="setting">
      <div>
        <label htmlFor={id}>{setting.label}</label>
        <div className="entry">
          <input
            id={id}
            inputMode="decimal"
            autoComplete="off"
            value={value}
            placeholder={setting.empty}
            aria-describedby={`${id}-means`}
            onChange={(event) => onEnter(event.target.value)}
          />
          {setting.unit !== "" && <span className="soft">{setting.unit}</span>}
        </div>
      </div>
      <Meaning setting={setting} id={`${id}-means`} />
    </div>
  );
}

function ChoiceEntry({ setting, present, entered, onEnter }: EntryProps<ChoiceSetting>) {
  const id = useId();
  const chosen = entered ?? present;
  return (
    <fieldset className="setting" aria-describedby={`${id}-means`}>
      <legend className="unseen">{setting.label}</legend>
      <div>
        <p aria-hidden="true">
          <strong>{setting.label}</strong>
        </p>
        {setting.choices.map(({ value, means }) => (
          <label key={value} className="check">
            <input type="radio" name={id} checked={chosen === value} onChange={() => onEnter(value)} />
            <span>
              {value} <small>{means}</small>
            </span>
          </label>
        ))}
        {typeof present === "string" && !setting.choices.some(({ value }) => value === present) && <p>unknown ({present})</p>}
      </div>
      <Meaning setting={setting} id={`${id}-means`} />
    </fieldset>
  );
}
