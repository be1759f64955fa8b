/** What tabs of one browser say to each other about the session. */
type Message = { kind: "ask" } | { kind: "token"; token: string; signOuts: string } | { kind: "sign-out" };

/** The part of a BroadcastChannel that is used: its messages reach the other tabs of the same origin, and nothing stores them. */
export interface Channel {
  postMessage: (message: Message) => void;
  onmessage: ((event: MessageEvent) => void) | null;
}

/** The session of this tab, as the other tabs see it. */
export interface SessionOfTab {
  /** The token that the server has not refused; null where there is none. */
  token: () => string | null;
  /** The mark of the last sign-out when the token was given; another mark means that the user has signed out since. */
  signOuts: () => string;
  /** Takes the token of another tab, where this one has use for it. */
  take: (token: string, signOuts: string) => void;
  /** The user has signed out in another tab. */
  end: () => void;
}

/** Hands the token from a tab that has one to one that has none. */
export class Handover {
  #channel: Channel | null;
  #session: SessionOfTab;
  #answered: (() => void) | null = null;

  constructor(channel: Channel | null, session: SessionOfTab) {
    this.#channel = channel;
    this.#session = session;
    if (channel !== null) channel.onmessage = ({ data }) => this.#receive(data);
  }

  /** Asks the other tabs. Ends with the first answer or when `patience` does; a later answer still counts. */
  async ask(patience: Promise<void>): Promise<void> {
    if (this.#channel === null) return;
    const answered = new Promise<void>((resolve) => {
      this.#answered = resolve;
    });
    this.#channel.postMessage({ kind: "ask" });
    await Promise.race([answered, patience]);
    this.#answered = null;
  }

  /** Gives the token to the tabs that have none: at a sign-in they need not be signed in one by one. */
  offer(): void {
    const token = this.#session.token();
    if (token !== null) this.#channel?.postMessage({ kind: "token", token, signOuts: this.#session.signOuts() });
  }

  signOut(): void {
    this.#channel?.postMessage({ kind: "sign-out" });
  }

  #receive(data: unknown): void {
    const message: { kind?: unknown; token?: unknown; signOuts?: unknown } = typeof data === "object" && data !== null ? data : {};
    if (message.kind === "ask") this.offer();
    if (message.kind === "sign-out") this.#session.end();
    if (message.kind === "token" && typeof message.token === "string" && typeof message.signOuts === "string") {
      this.#session.take(message.token, message.signOuts);
      this.#answered?.();
    }
  }
}
