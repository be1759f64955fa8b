-- A column comes while a transaction is open whose savepoints wrote elsewhere first; another one holds locks on the catalog.
-- replicate harvest
-- replicate other
-- setup
CREATE TABLE other (id serial PRIMARY KEY);
CREATE TABLE harvest (id serial PRIMARY KEY, apples int, pears int);
-- workload
-- session b
BEGIN;
SAVEPOINT s0;
SELECT txid_current();
SAVEPOINT s1;
INSERT INTO other DEFAULT VALUES;
-- session a
ALTER TABLE harvest ADD COLUMN mangos int;
-- session b
INSERT INTO harvest (apples, pears, mangos) VALUES (1, 2, 3);
RELEASE SAVEPOINT s1;
RELEASE SAVEPOINT s0;
COMMIT;
-- wait
-- session b
BEGIN;
SELECT count(*) FROM (SELECT * FROM pg_class FOR KEY SHARE) s;
-- session c
BEGIN;
SELECT count(*) FROM (SELECT * FROM pg_class FOR KEY SHARE) s;
-- session a
ALTER TABLE other ADD COLUMN ts timestamptz;

INSERT INTO other DEFAULT VALUES;

INSERT INTO other (ts) VALUES ('2020-01-01 00:00+00');
-- session b
COMMIT;
-- session c
COMMIT;
