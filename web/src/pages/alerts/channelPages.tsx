import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { ALERTS } from "../../addresses";
import { type AlertChannel, alertChannelsQuery } from "../../api/alerts";
import { announce } from "../../components/announcements";
import { Page } from "../../components/page";
import { QueryBoundary } from "../../components/queryBoundary";
import { ShownOnce } from "../../components/shownOnce";
import { KIND_WORDS, kindTitle } from "../../labels/alerts";
import { ChannelForm } from "./channelForm";

const above = <Link href={ALERTS}>Alerts</Link>;

export function NewAlertChannelPage() {
  const channels = useQuery(alertChannelsQuery());
  return (
    <Page title="New alert channel" above={above}>
      <QueryBoundary query={channels}>{(items) => <Channel present={null} taken={items.map(({ name }) => name)} />}</QueryBoundary>
    </Page>
  );
}

export function AlertChannelPage({ name }: { name: string }) {
  const channels = useQuery({ ...alertChannelsQuery(), refetchInterval: false });
  return (
    <Page title={name} above={above}>
      <QueryBoundary query={channels}>
        {(items) => {
          const present = items.find((item) => item.name === name);
          if (present === undefined) return <p className="prose">There is no alert channel named {name}.</p>;
          if (KIND_WORDS[present.kind] === undefined) {
            return <p className="prose">This console knows no settings of the kind {kindTitle(present.kind)}; use the API.</p>;
          }
          return <Channel present={present} taken={[]} />;
        }}
      </QueryBoundary>
    </Page>
  );
}

/** The form; after a key was made in it, the key, which is not shown again. */
function Channel({ present, taken }: { present: AlertChannel | null; taken: string[] }) {
  const [, navigate] = useLocation();
  const [stored, setStored] = useState<{ name: string; key: string } | null>(null);
  const leave = (name: string): void => {
    navigate(ALERTS);
    setTimeout(() => announce(`${name}: the alert channel was ${present === null ? "created" : "changed"}. Send a test notice to try it.`));
  };
  if (stored !== null) {
    return (
      <ShownOnce
        text={`The alert channel ${stored.name} is stored. Give this key to the receiver, which verifies signatures with it: it is shown only now.`}
        label={`Signing key of ${stored.name}`}
        secret={stored.key}
        taken="I have the key"
        onDone={() => leave(stored.name)}
      />
    );
  }
  return <ChannelForm present={present} taken={taken} onStored={(name, key) => (key === null ? leave(name) : setStored({ name, key }))} />;
}
