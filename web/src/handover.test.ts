import { describe, expect, it } from "vitest";
import { type Channel, Handover } from "./handover";

/** Channels of tabs of one browser. */
function channels(count: number): Channel[] {
  const all: Channel[] = Array.from({ length: count }, () => ({ postMessage: () => undefined, onmessage: null }));
  for (const own of all) {
    own.postMessage = (data) => {
      for (const other of all) if (other !== own) other.onmessage?.({ data: structuredClone(data) } as MessageEvent);
    };
  }
  return all;
}

interface Tab {
  token: string | null;
  signOuts: string;
  handover: Handover;
  ended: number;
}

function tab(channel: Channel | undefined, token: string | null): Tab {
  const made: Tab = {
    token,
    signOuts: "",
    ended: 0,
    handover: new Handover(channel ?? null, {
      token: () => made.token,
      signOuts: () => made.signOuts,
      take: (given, signOuts) => {
        if (made.token === null && signOuts === made.signOuts) made.token = given;
      },
      end: () => {
        made.token = null;
        made.ended += 1;
      },
    }),
  };
  return made;
}

const never = new Promise<void>(() => undefined);

describe("handover", () => {
  it("gives a tab without a token that of another one", async () => {
    const [one, two] = channels(2);
    tab(one, "t1");
    const asked = tab(two, null);
    await asked.handover.ask(never);
    expect(asked.token).toBe("t1");
  });

  it("ends with the patience where no tab has one, and takes what comes later", async () => {
    const [one, two] = channels(2);
    const other = tab(one, null);
    const asked = tab(two, null);
    await asked.handover.ask(Promise.resolve());
    expect(asked.token).toBeNull();
    other.token = "late";
    other.handover.offer();
    expect(asked.token).toBe("late");
  });

  it("keeps the token that a tab has", () => {
    const [one, two] = channels(2);
    const other = tab(two, "own");
    tab(one, "t1").handover.offer();
    expect(other.token).toBe("own");
  });

  it("leaves a token from before a sign-out", async () => {
    const [one, two] = channels(2);
    tab(one, "old");
    const asked = tab(two, null);
    asked.signOuts = "1";
    await asked.handover.ask(Promise.resolve());
    expect(asked.token).toBeNull();
  });

  it("ends the session of all other tabs", () => {
    const [one, two, three] = channels(3);
    const others = [tab(two, "a"), tab(three, "b")];
    tab(one, "a").handover.signOut();
    expect(others.map(({ ended }) => ended)).toEqual([1, 1]);
  });

  it.each([null, "ask", 7, { kind: "token" }, { kind: "token", token: 5, signOuts: "" }, { kind: "other" }])("ignores %j", (data) => {
    const [one] = channels(1);
    const only = tab(one, null);
    one?.onmessage?.({ data } as MessageEvent);
    expect([only.token, only.ended]).toEqual([null, 0]);
  });

  it("does without a channel", async () => {
    const only = tab(undefined, null);
    await only.handover.ask(never);
    only.handover.signOut();
    expect(only.token).toBeNull();
  });
});
