-- replicate quiet
-- setup
CREATE TABLE quiet (id int PRIMARY KEY, v text);
CREATE TABLE elsewhere (id int PRIMARY KEY, v text);
INSERT INTO quiet VALUES (1, 'a');
-- workload
BEGIN;
COMMIT;

SELECT pg_current_xact_id();

BEGIN;
SELECT pg_current_xact_id();
INSERT INTO quiet VALUES (2, 'undone');
ROLLBACK;
-- wait
INSERT INTO elsewhere SELECT g, 'not replicated' FROM generate_series(1, 2000) g;
-- wait
SELECT pg_logical_emit_message(true, 'somebody else', 'hello');

SELECT pg_logical_emit_message(false, 'somebody else', 'hello');
-- wait
CREATE TABLE made_meanwhile (id int);
DROP TABLE made_meanwhile;

UPDATE quiet SET v = 'b' WHERE id = 99;
-- wait
UPDATE quiet SET v = 'z';
