import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import type { Action } from "../../actions";
import { alertChannelAddress, NEW_ALERT_CHANNEL } from "../../addresses";
import { type AlertChannel, alertChannelsQuery, deleteAlertChannel, testAlertChannel } from "../../api/alerts";
import { ActionButtons } from "../../components/actions";
import { Page } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { StatusBadge } from "../../components/statusBadge";
import { Ago } from "../../components/time";
import { causeWords, kindTitle, receiverOf } from "../../labels/alerts";
import { seconds } from "../../labels/numbers";
import { usePermission } from "../../usePermission";

/** Where notices of alerts are sent, and whether they arrive. */
export function AlertsPage() {
  const channels = useQuery(alertChannelsQuery());
  const mayChange = usePermission()("operator");
  return (
    <Page
      title="Alerts"
      actions={
        mayChange && (
          <Link href={NEW_ALERT_CHANNEL} className="button">
            New alert channel
          </Link>
        )
      }
    >
      <QueryBoundary query={channels}>
        {(items) =>
          items.length === 0 ? (
            <p className="prose">
              There is no alert channel yet. A channel sends notices by webhook, Slack or e-mail
              {mayChange ? "." : "; making one needs the role operator."}
            </p>
          ) : (
            <ul className="connections">
              {items.map((item) => (
                <Entry key={item.name} channel={item} mayChange={mayChange} />
              ))}
            </ul>
          )
        }
      </QueryBoundary>
    </Page>
  );
}

function Entry({ channel, mayChange }: { channel: AlertChannel; mayChange: boolean }) {
  const { name, kind, causes, subscriptions, repeat_seconds, secrets_set } = channel;
  const receiver = receiverOf(channel);
  return (
    <li>
      <div className="connection-head">
        <h2>{name}</h2>
        <p>
          <span className="soft">{kindTitle(kind)}</span> {receiver !== null && <code>{receiver}</code>}
        </p>
        <p className="soft">{secrets_set.length > 0 ? `${secrets_set.join(", ").replaceAll("_", " ")} set` : "no secret set"}</p>
        {mayChange && (
          <div className="row-actions">
            <Link href={alertChannelAddress(name)} aria-label={`Change ${name}`}>
              Change
            </Link>
            <ActionButtons actions={[deletion(name)]} />
          </div>
        )}
      </div>
      <p className="prose">
        Sends when {causes.length === 0 ? "there is any cause" : causes.map(causeWords).join("; when ")}
        {subscriptions.length > 0 && <>; only for {subscriptions.join(", ")}</>}.{" "}
        <span className="soft">Repeated every {seconds(repeat_seconds)} while the cause lasts.</span>
      </p>
      <Delivery channel={channel} />
      {mayChange && <Test name={name} />}
    </li>
  );
}

/** How the newest attempt ended, and when the last notice arrived. */
function Delivery({ channel: { delivered_at, last_error } }: { channel: AlertChannel }) {
  const last =
    delivered_at === null ? (
      "Nothing was delivered yet."
    ) : (
      <>
        Last delivered <Ago at={delivered_at} />.
      </>
    );
  if (last_error === null) return <p>{delivered_at === null ? last : <StatusBadge tone="good">{last}</StatusBadge>}</p>;
  return (
    <p>
      <StatusBadge tone="bad">The newest attempt failed: {last_error}</StatusBadge> <span className="soft">{last}</span>
    </p>
  );
}

const deletion = (name: string): Action => ({
  verb: "Delete",
  title: `Delete the alert channel ${name}?`,
  does: ["It sends nothing any more.", "Notices that are not delivered yet are deleted with it."],
  loses: "Its settings are forgotten, with its secret, which cannot be read back.",
  name,
  serious: true,
  run: () => deleteAlertChannel(name),
  done: `${name}: the alert channel was deleted.`,
});

function Test({ name }: { name: string }) {
  const work = useMutation({ mutationFn: () => testAlertChannel(name) });
  return (
    <div className="check-run">
      <button type="button" disabled={work.isPending} aria-label={`Send a test notice: ${name}`} onClick={() => work.mutate()}>
        {work.isPending ? "Sending …" : "Send a test notice"}
      </button>
      <div role="status">
        {work.data !== undefined && (
          <StatusBadge tone={work.data.delivered ? "good" : "bad"}>
            {work.data.delivered ? "The test notice was accepted" : "The test notice was not delivered"}: {work.data.detail}
          </StatusBadge>
        )}
      </div>
      {work.error !== null && <ProblemNote error={work.error} />}
    </div>
  );
}
