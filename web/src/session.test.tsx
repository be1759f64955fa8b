import { beforeEach, describe, expect, it, vi } from "vitest";

/** What the other tabs of the browser get and send. */
const posted: unknown[] = [];
let channel: { onmessage: ((event: { data: unknown }) => void) | null } | undefined;

class ChannelOfTest {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  constructor() {
    channel = this;
  }
  postMessage = (message: unknown): void => void posted.push(message);
}

/** The module as a tab that is opened now has it. */
async function opened() {
  vi.resetModules();
  return import("./session");
}

const receive = (data: unknown): void => channel?.onmessage?.({ data });
const signedOutElsewhere = (mark: string): void => {
  localStorage.setItem("penstock-sign-outs", mark);
  dispatchEvent(new StorageEvent("storage", { key: "penstock-sign-outs" }));
};

beforeEach(() => {
  posted.length = 0;
  vi.stubGlobal("BroadcastChannel", ChannelOfTest);
});

describe("a session", () => {
  it("is kept for the tab, never in the local storage", async () => {
    const { signIn } = await opened();
    signIn("secret");
    expect((await opened()).session.get().token).toBe("secret");
    expect(JSON.stringify({ ...localStorage })).not.toContain("secret");
  });

  it("is handed to a tab that asks, not to one after the token was refused", async () => {
    const { signIn, refuse } = await opened();
    signIn("secret");
    posted.length = 0;
    receive({ kind: "ask" });
    expect(posted).toEqual([{ kind: "token", token: "secret", signOuts: "" }]);
    refuse("secret");
    receive({ kind: "ask" });
    expect(posted).toHaveLength(1);
  });

  it("is taken over from another tab", async () => {
    const { askOtherTabs, session } = await opened();
    const asked = askOtherTabs();
    expect(posted).toEqual([{ kind: "ask" }]);
    receive({ kind: "token", token: "given", signOuts: "" });
    await asked;
    expect(session.get()).toEqual({ token: "given", refused: false, wrong: false });
  });

  it("is not taken over where the server wants no token", async () => {
    const { session } = await opened();
    receive({ kind: "token", token: "given", signOuts: "" });
    expect(session.get().token).toBeNull();
  });

  it("ends in all tabs", async () => {
    const { session, signIn, signOut } = await opened();
    signIn("secret");
    signOut();
    expect(posted.at(-1)).toEqual({ kind: "sign-out" });
    expect(localStorage.getItem("penstock-sign-outs")).not.toBeNull();
    signIn("second");
    receive({ kind: "sign-out" });
    expect(session.get()).toEqual({ token: null, refused: true, wrong: false });
    signIn("third");
    signedOutElsewhere("later");
    expect(session.get().token).toBeNull();
  });

  it("ends for a tab that was put away during the sign-out", async () => {
    const { signIn } = await opened();
    signIn("secret");
    localStorage.setItem("penstock-sign-outs", "meanwhile");
    expect((await opened()).session.get().token).toBeNull();
    expect(sessionStorage.getItem("penstock-token")).toBeNull();
  });

  it("does not pass on a token from before a sign-out that it has not heard of yet", async () => {
    const { signIn } = await opened();
    signIn("secret");
    posted.length = 0;
    localStorage.setItem("penstock-sign-outs", "meanwhile");
    receive({ kind: "ask" });
    expect(posted).toEqual([]);
  });
});
