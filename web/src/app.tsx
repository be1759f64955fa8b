import { Suspense, useEffect } from "react";
import { Link, Route, Switch, useLocation } from "wouter";
import { ALERTS, CONNECTIONS, FLEET, FRESHNESS, NEW_ALERT_CHANNEL, NEW_CONNECTION, NEW_SUBSCRIPTION, TICKETS, TOKENS } from "./addresses";
import { AskedAction } from "./components/actions";
import { Announcements } from "./components/announcements";
import { CrashGuard } from "./components/crash";
import { Preferences } from "./components/preferences";
import { StreamStatus } from "./components/streamStatus";
import { later } from "./later";
import { ConnectionsPage } from "./pages/connections";
import { FleetPage } from "./pages/fleet";
import { NothingHerePage } from "./pages/nothingHere";
import { SignInPage } from "./pages/signIn";
import { SubscriptionPage } from "./pages/subscription/page";
import { TablePage } from "./pages/table";
import { TicketsPage } from "./pages/tickets/page";
import { ConnectionPage, NewConnectionPage } from "./pages/wizard/connectionPages";
import { session } from "./session";
import { useStore } from "./store";
import { useEventStream } from "./stream/invalidation";
import { queryClient } from "./stream/queryClient";
import { usePermission } from "./usePermission";

// What a first visit does not show is loaded when it is visited.
const NewSubscriptionPage = later(async () => (await import("./pages/wizard/newSubscription")).NewSubscriptionPage);
const AlertsPage = later(async () => (await import("./pages/alerts/page")).AlertsPage);
const AlertChannelPage = later(async () => (await import("./pages/alerts/channelPages")).AlertChannelPage);
const NewAlertChannelPage = later(async () => (await import("./pages/alerts/channelPages")).NewAlertChannelPage);
const TokensPage = later(async () => (await import("./pages/tokens/page")).TokensPage);
const AddTablePage = later(async () => (await import("./pages/tableOptions/addPage")).AddTablePage);
const TableOptionsPage = later(async () => (await import("./pages/tableOptions/page")).TableOptionsPage);
const FreshnessPage = later(async () => (await import("./pages/freshness/page")).FreshnessPage);

/** The ways through the console; pages about one thing are reached from there. `within`: what such pages' addresses begin with. */
const NAV_ITEMS = [
  { address: FLEET, label: "Fleet", within: "/subscriptions/" },
  { address: FRESHNESS, label: "Freshness", within: null },
  { address: TICKETS, label: "Tickets", within: null },
  { address: CONNECTIONS, label: "Connections", within: "/connections/" },
  { address: ALERTS, label: "Alerts", within: "/alerts/" },
];
const ADMIN_ITEMS = [...NAV_ITEMS, { address: TOKENS, label: "Tokens", within: null }];

export function App() {
  const { refused } = useStore(session);
  const [path] = useLocation();
  useEventStream();
  useEffect(() => {
    // The next one to come may not see the same.
    if (refused) queryClient.clear();
  }, [refused]);
  return (
    <>
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <Header path={path} signedIn={!refused} />
      <main id="main" tabIndex={-1}>
        <CrashGuard place={path}>
          {refused ? (
            <SignInPage />
          ) : (
            <Suspense fallback={<Loading />}>
              <Pages />
            </Suspense>
          )}
        </CrashGuard>
      </main>
      <AskedAction place={path} />
      <Announcements place={path} />
    </>
  );
}

const Loading = () => (
  <p className="soft" role="status">
    Loading …
  </p>
);

function Header({ path, signedIn }: { path: string; signedIn: boolean }) {
  return (
    <header className="top">
      <Link href={FLEET} className="wordmark">
        <svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true" focusable="false">
          <path d="M1 3h4c4 0 4 10 10 10" fill="none" stroke="currentColor" strokeWidth="3" />
        </svg>
        Penstock
      </Link>
      {signedIn && (
        <>
          <Nav path={path} />
          <StreamStatus />
        </>
      )}
      <Preferences />
    </header>
  );
}

function Nav({ path }: { path: string }) {
  const may = usePermission();
  return (
    <nav className="nav" aria-label="Console">
      {(may("admin") ? ADMIN_ITEMS : NAV_ITEMS).map(({ address, label, within }) => (
        <Link
          key={address}
          href={address}
          aria-current={path === address ? "page" : within !== null && path.startsWith(within) ? "true" : undefined}
        >
          {label}
        </Link>
      ))}
    </nav>
  );
}

/** A key makes another thing's page another page: its heading takes the focus, and nothing of the one before stays. */
function Pages() {
  return (
    <Switch>
      <Route path={FLEET}>
        <FleetPage />
      </Route>
      <Route path="/subscriptions/:name/:part?">
        {({ name, part }) => <SubscriptionPage key={`${name}/${part ?? ""}`} name={name} part={part} />}
      </Route>
      <Route path="/subscriptions/:name/add/table">{({ name }) => <AddTablePage key={name} subscription={name} />}</Route>
      <Route path="/subscriptions/:name/tables/:id/options">
        {({ name, id }) => <TableOptionsPage key={`${name}/${id}`} subscription={name} id={id} />}
      </Route>
      <Route path="/subscriptions/:name/tables/:id">
        {({ name, id }) => <TablePage key={`${name}/${id}`} subscription={name} id={id} />}
      </Route>
      <Route path={FRESHNESS}>
        <FreshnessPage />
      </Route>
      <Route path={TICKETS}>
        <TicketsPage />
      </Route>
      <Route path={CONNECTIONS}>
        <ConnectionsPage />
      </Route>
      <Route path={NEW_CONNECTION}>
        <NewConnectionPage />
      </Route>
      <Route path="/connections/:name">{({ name }) => <ConnectionPage key={name} name={name} />}</Route>
      <Route path={ALERTS}>
        <AlertsPage />
      </Route>
      <Route path={NEW_ALERT_CHANNEL}>
        <NewAlertChannelPage />
      </Route>
      <Route path="/alerts/:name">{({ name }) => <AlertChannelPage key={name} name={name} />}</Route>
      <Route path={TOKENS}>
        <TokensPage />
      </Route>
      <Route path={NEW_SUBSCRIPTION}>
        <NewSubscriptionPage />
      </Route>
      <Route>
        <NothingHerePage />
      </Route>
    </Switch>
  );
}
