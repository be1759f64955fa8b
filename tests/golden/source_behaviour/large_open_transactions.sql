-- replicate stock
-- replicate moves
-- setup
CREATE TABLE stock (id int PRIMARY KEY, n int, pad text);
CREATE TABLE moves (id int PRIMARY KEY, v text);
INSERT INTO stock SELECT g, g, 'pad' FROM generate_series(1, 1000) g;
-- workload
BEGIN;
INSERT INTO stock SELECT g, g, repeat('a', 100) FROM generate_series(10001, 14000) g;
INSERT INTO moves SELECT g, 'first' FROM generate_series(1, 500) g;
SAVEPOINT one;
UPDATE stock SET n = -n WHERE id > 12000;
DELETE FROM stock WHERE id <= 100;
-- session b
INSERT INTO stock VALUES (50001, 1, 'in between');

UPDATE stock SET pad = 'from b' WHERE id = 500;
-- session c
BEGIN;
INSERT INTO stock SELECT g, g, repeat('c', 100) FROM generate_series(20001, 23000) g;
UPDATE stock SET n = 0 WHERE id BETWEEN 600 AND 700;
-- session a
ROLLBACK TO one;
UPDATE stock SET n = n + 1 WHERE id BETWEEN 200 AND 300;
-- session b
INSERT INTO moves VALUES (100000, 'b');
-- wait
-- session c
ROLLBACK;
-- session a
INSERT INTO stock SELECT g, g, 'late' FROM generate_series(30001, 32000) g;
SAVEPOINT two;
INSERT INTO moves SELECT g, 'undone' FROM generate_series(1001, 3000) g;
ROLLBACK TO two;
INSERT INTO moves SELECT g, 'kept' FROM generate_series(1001, 1100) g;
COMMIT;
-- session b
DELETE FROM stock WHERE id BETWEEN 10001 AND 10100;

BEGIN;
TRUNCATE moves;
INSERT INTO moves SELECT g, 'again' FROM generate_series(1, 2000) g;
-- session c
INSERT INTO stock VALUES (60000, 1, 'while b is open');
-- session b
COMMIT;
