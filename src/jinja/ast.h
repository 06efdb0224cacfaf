// A parsed template. It does not change after parsing, and all renderings share it.
//
// What holds: no expression is deeper than kMaxExpressionDepth and no statement is nested deeper than kMaxNesting, so
//   that code that walks or destroys a template may recurse.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quire/jinja/operators.h"
#include "quire/jinja/scope.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

inline constexpr int kMaxExpressionDepth = 250;
inline constexpr int kMaxNesting = 100;

struct Expression;
struct Statement;
struct Filter;
struct Test;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<Statement>;

struct Literal {
  Value value;
};

struct Name {
  NameId id;
};

struct AttributeOf {
  ExpressionPtr object;
  std::string name;
};

struct ItemOf {
  ExpressionPtr object;
  ExpressionPtr key;
};

struct SliceOf {
  ExpressionPtr object;
  ExpressionPtr start;  // each is null if it is left out
  ExpressionPtr stop;
  ExpressionPtr step;
};

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *more; null if there is none
  ExpressionPtr more_named;       // **more
};

struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};

// The input of a block's filters: the text that the block printed.
struct Captured {};

struct FilterUse {
  ExpressionPtr input;
  std::string name;
  const Filter* filter;  // null if the name is unknown, which is an error only when it is used
  ArgumentList arguments;
};

struct TestUse {
  ExpressionPtr input;
  std::string name;
  const Test* test;
  ArgumentList arguments;
};

struct Unary {
  enum class Operation { negate, plus, logical_not };
  Operation operation;
  ExpressionPtr operand;
};

struct Binary {
  Arithmetic operation;
  ExpressionPtr left;
  ExpressionPtr right;
};

struct Logical {
  bool is_and;
  ExpressionPtr left;
  ExpressionPtr right;
};

struct Comparisons {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};

struct Concatenation {
  std::vector<ExpressionPtr> parts;
};

struct Conditional {
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // null where there is none
};

struct ListDisplay {
  SequenceKind kind;
  std::vector<ExpressionPtr> items;
};

struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

struct Expression {
  std::variant<Literal, Name, AttributeOf, ItemOf, SliceOf, Call, Captured, FilterUse, TestUse, Unary, Binary, Logical,
               Comparisons, Concatenation, Conditional, ListDisplay, DictDisplay>
      node;
  int line;
  int depth;  // of this tree
};

// The target of an assignment: a name, an attribute of a namespace, or several of these.
struct Target {
  NameId name = -1;
  std::string attribute;      // not empty: an attribute of the namespace `name`
  std::vector<Target> parts;  // not empty, or is_tuple: the value is unpacked
  bool is_tuple = false;
};

struct Data {
  std::string text;
};

struct Print {
  ExpressionPtr value;
};

struct IfStatement {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};

struct ForStatement {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  // null where there is none
  Block body;
  Block otherwise;
};

struct SetStatement {
  Target target;
  ExpressionPtr value;
};

struct SetBlock {
  Target target;
  ExpressionPtr filters;  // applied to the output of the body; null if there are none
  Block body;
};

struct Parameter {
  NameId id;
  std::string name;
  ExpressionPtr otherwise;  // null if there is no default
};

struct MacroDefinition {
  NameId id = -1;
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct CallBlock {
  MacroDefinition caller;
  ExpressionPtr call;
};

struct FilterBlock {
  ExpressionPtr filters;
  Block body;
};

struct WithStatement {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
};

// {% generation %} marks the assistant's text for training. Here it only opens a scope.
struct Generation {
  Block body;
};

struct Break {};
struct Continue {};

struct Statement {
  std::variant<Data, Print, IfStatement, ForStatement, SetStatement, SetBlock, MacroDefinition, CallBlock, FilterBlock,
               WithStatement, Generation, Break, Continue>
      node;
  int line;
};

struct Program {
  std::vector<std::string> names;  // by NameId
  Block body;
  NameId loop = -1;  // names that the interpreter sets
  NameId caller = -1;
  NameId varargs = -1;
  NameId kwargs = -1;
};

}  // namespace quire::jinja
